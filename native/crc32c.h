// CRC-32C (Castagnoli, RFC 3720): the SSE4.2 or ARMv8 instruction where there is one, else tables.
#pragma once

#include "isa.h"

namespace spillway {

// Continues `crc` (0 to start) over `length` bytes.
uint32_t crc32c(const uint8_t* bytes, size_t length, uint32_t crc);

// Exports crc32c.
void registerCrc32c(napi_env env, napi_value exports);

}  // namespace spillway

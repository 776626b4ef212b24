// Conversions between float32 and the 16-bit formats, by integer arithmetic on every ISA.
#pragma once

#include "isa.h"

namespace spillway {

// Widen `length` elements exactly to the bit patterns of float32 (a signalling NaN half is quieted).
void bf16ToF32(const uint16_t* source, uint32_t* target, size_t length);
void f16ToF32(const uint16_t* source, uint32_t* target, size_t length);

// Exports bf16ToF32, f32ToBf16, f16ToF32 and f32ToF16.
void registerCasts(napi_env env, napi_value exports);

}  // namespace spillway

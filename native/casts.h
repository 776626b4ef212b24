// Conversions between float32 and the 16-bit formats, by integer arithmetic on every ISA.
#pragma once

#include "isa.h"

namespace spillway {

// Exports bf16ToF32, f32ToBf16, f16ToF32 and f32ToF16.
void registerCasts(napi_env env, napi_value exports);

}  // namespace spillway

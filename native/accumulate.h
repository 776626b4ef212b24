// target[i] += source[i] in float32: adds one contribution to a canonical gradient.
#pragma once

#include "isa.h"

namespace spillway {

// Exports accumulate.
void registerAccumulate(napi_env env, napi_value exports);

}  // namespace spillway

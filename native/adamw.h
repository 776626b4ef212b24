// One AdamW update in the rounding order of torch 2.x (docs/adamw-bits.md), in place.
#pragma once

#include "isa.h"

namespace spillway {

// Exports adamw and adamwSplit.
void registerAdamw(napi_env env, napi_value exports);

}  // namespace spillway

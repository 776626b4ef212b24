// Leaves of the gradient norm: the sum of squares of each 4096 elements, in a fixed order.
#pragma once

#include "isa.h"

namespace spillway {

// Elements per leaf; NORM_LEAF_ELEMENTS in core/types.ts, which a test compares through the sums.
constexpr size_t kNormLeafElements = 4096;

// Exports squaredNormLeaves.
void registerGradNorm(napi_env env, napi_value exports);

}  // namespace spillway

// Functions that only tests and benchmarks call: references to compare the kernels with.
#pragma once

#include "isa.h"

namespace spillway {

// Exports fusedMultiplyAdd and adamwTraffic.
void registerProbes(napi_env env, napi_value exports);

}  // namespace spillway

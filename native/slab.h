// Where a view lies in memory, and what the kernel should do with its pages.
#pragma once

#include <node_api.h>

namespace spillway {

// Exports slabAddress, slabAdvise.
void registerSlab(napi_env env, napi_value exports);

}  // namespace spillway

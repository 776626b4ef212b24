// The native device as JavaScript holds it: an arena and three queues.
#pragma once

#include <node_api.h>

namespace spillway {

// Exports runtimeCreate, runtimeClose and what lies between; typed in tiers/native/binding.ts.
void registerDeviceRuntime(napi_env env, napi_value exports);

}  // namespace spillway

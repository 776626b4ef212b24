// The kernels by id, and the exports that find and run them.
#pragma once

#include <node_api.h>

#include "kernel.h"

namespace spillway {

// The kernel of `id`, or null when there is none.
KernelFn kernelOf(int64_t id);
// The id of the kernel `name`, or -1 when there is none.
int64_t kernelIdOf(const char* name);

// Exports kernelId(name), kernelNames() and runKernelNow(id, base, args, threads).
void registerKernelExports(napi_env env, napi_value exports);

}  // namespace spillway

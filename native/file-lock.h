// Exclusive lock and reserved space of an open file, by descriptor.
#pragma once

#include <node_api.h>

namespace spillway {

// Exports fileLock, fileReserve.
void registerFileLock(napi_env env, napi_value exports);

}  // namespace spillway

// The blocking ring of a worker thread: push, then submit and wait inside one native call.
//
// Ownership: the JavaScript handle owns the session; syncRingClose or its finalizer waits for what
// is in flight and frees it. Used on the thread that created it only.
#pragma once

#include <node_api.h>

namespace spillway {

// Exports syncRingCreate, syncRingPush, syncRingWait, syncRingClose.
void registerSyncRing(napi_env env, napi_value exports);

}  // namespace spillway

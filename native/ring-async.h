// The ring of an event loop: completions arrive by uv_poll on the ring's own descriptor.
//
// Ownership: one AsyncRing has up to two owners, the JavaScript handle and the libuv poll handle;
// the last one frees it. Closing (asyncRingClose, the finalizer, or the environment's cleanup
// hook, whichever is first) waits for what is in flight, stops the poll and starts uv_close; the
// memory lives until libuv's close callback, so a ring may be closed inside its own callback.
#pragma once

#include <node_api.h>

namespace spillway {

// Exports asyncRingCreate, asyncRingPush, asyncRingSubmit, asyncRingClose.
void registerAsyncRing(napi_env env, napi_value exports);

}  // namespace spillway

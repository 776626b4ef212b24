#include "ring-async.h"

#include <cstdlib>

#include "napi-helpers.h"
#include "ring-session.h"
#include "uv-abi.h"

namespace spillway {

namespace {

const napi_type_tag kAsyncRingTag = {0x7370696c6c776179, 0x6173796e6372696e};

struct AsyncRing {
  napi_env env = nullptr;
  RingSession session;
  uv::Poll* poll = nullptr;
  napi_async_cleanup_hook_handle hook = nullptr;
  napi_ref callback = nullptr;
  bool closed = false;
  int owners = 1;
};

void releaseOwner(AsyncRing* ring) {
  if (--ring->owners == 0) delete ring;
}

void onPollClosed(uv::Poll* poll) {
  auto* ring = static_cast<AsyncRing*>(uv::uv_handle_get_data(poll));
  std::free(poll);
  // Also tells an environment that is shutting down that this ring is done.
  if (ring->hook != nullptr) napi_remove_async_cleanup_hook(ring->hook);
  releaseOwner(ring);
}

void closeRing(AsyncRing* ring) {
  if (ring->closed) return;
  ring->closed = true;
  // The poll watches the ring's descriptor, so it must stop before the descriptor closes.
  uv::uv_poll_stop(ring->poll);
  ring->session.release(ring->env);
  if (ring->callback != nullptr) napi_delete_reference(ring->env, ring->callback);
  ring->callback = nullptr;
  uv::uv_close(ring->poll, onPollClosed);
}

void onCleanup(napi_async_cleanup_hook_handle, void* data) {
  closeRing(static_cast<AsyncRing*>(data));
}

void finalizeAsyncRing(napi_env, void* data, void*) {
  auto* ring = static_cast<AsyncRing*>(data);
  closeRing(ring);
  releaseOwner(ring);
}

void callBack(AsyncRing* ring, uint32_t count) {
  napi_env env = ring->env;
  napi_value global, callback, countValue, ignored;
  if (napi_get_global(env, &global) != napi_ok ||
      napi_get_reference_value(env, ring->callback, &callback) != napi_ok ||
      napi_create_uint32(env, count, &countValue) != napi_ok) {
    return;
  }
  if (napi_make_callback(env, nullptr, global, callback, 1, &countValue, &ignored) ==
      napi_pending_exception) {
    napi_value error;
    if (napi_get_and_clear_last_exception(env, &error) == napi_ok) {
      napi_fatal_exception(env, error);
    }
  }
}

// One batch per dispatch: what is left makes the descriptor readable again, and other handles of
// the loop get their turn in between.
void onReadable(uv::Poll* poll, int, int) {
  auto* ring = static_cast<AsyncRing*>(uv::uv_handle_get_data(poll));
  if (ring->closed) return;
  napi_handle_scope scope;
  if (napi_open_handle_scope(ring->env, &scope) != napi_ok) return;
  const napi_env env = ring->env;
  const uint32_t count = ring->session.writeCompletions(env);
  if (count > 0) callBack(ring, count);
  // The callback may have closed the ring; its memory lives until onPollClosed.
  if (!ring->closed && ring->session.ring().inFlight() == 0) uv::uv_unref(poll);
  napi_close_handle_scope(env, scope);
}

AsyncRing* getRing(napi_env env, napi_value handle) {
  bool tagged = false;
  void* data = nullptr;
  if (napi_check_object_type_tag(env, handle, &kAsyncRingTag, &tagged) == napi_ok && tagged &&
      napi_unwrap(env, handle, &data) == napi_ok) {
    return static_cast<AsyncRing*>(data);
  }
  throwTypeError(env, "handle must come from asyncRingCreate");
  return nullptr;
}

// Starts watching the ring's descriptor; unreferenced, so an idle ring keeps no process alive.
bool startPoll(napi_env env, AsyncRing* ring) {
  uv_loop_s* loop = nullptr;
  if (napi_get_uv_event_loop(env, &loop) != napi_ok) return false;
  auto* poll = static_cast<uv::Poll*>(std::calloc(1, uv::uv_handle_size(uv::kPoll)));
  if (poll == nullptr) return false;
  if (uv::uv_poll_init(loop, poll, ring->session.ring().fd()) != 0) {
    std::free(poll);
    return false;
  }
  ring->poll = poll;
  ring->owners += 1;
  uv::uv_handle_set_data(poll, ring);
  uv::uv_unref(poll);
  return uv::uv_poll_start(poll, uv::kReadable, onReadable) == 0;
}

// asyncRingCreate(depth, completions, onComplete): handle. onComplete(count) finds its pairs in
// `completions`; it must not throw.
napi_value asyncRingCreate(napi_env env, napi_callback_info info) {
  Arguments<3> arguments;
  if (!arguments.read(env, info)) return nullptr;
  auto* ring = new AsyncRing();
  ring->env = env;
  if (!ring->session.open(env, arguments[0], arguments[1], RingUse::kPolled)) {
    delete ring;
    return nullptr;
  }
  napi_value handle;
  napi_valuetype type;
  const bool created =
      napi_typeof(env, arguments[2], &type) == napi_ok && type == napi_function &&
      napi_create_reference(env, arguments[2], 1, &ring->callback) == napi_ok &&
      startPoll(env, ring) &&
      napi_add_async_cleanup_hook(env, onCleanup, ring, &ring->hook) == napi_ok &&
      napi_create_object(env, &handle) == napi_ok &&
      napi_type_tag_object(env, handle, &kAsyncRingTag) == napi_ok &&
      napi_wrap(env, handle, ring, finalizeAsyncRing, nullptr, nullptr) == napi_ok;
  if (created) return handle;
  if (ring->poll != nullptr) {
    closeRing(ring);
  } else {
    ring->session.release(env);
    if (ring->callback != nullptr) napi_delete_reference(env, ring->callback);
  }
  releaseOwner(ring);
  throwTypeError(env, "onComplete is no function, or the event loop refuses the ring");
  return nullptr;
}

// asyncRingPush(handle, slot, op, fd, offset, view)
napi_value asyncRingPush(napi_env env, napi_callback_info info) {
  Arguments<6> arguments;
  if (!arguments.read(env, info)) return nullptr;
  AsyncRing* ring = getRing(env, arguments[0]);
  if (ring != nullptr) ring->session.push(env, arguments.values + 1);
  return nullptr;
}

// asyncRingSubmit(handle): 0 when the kernel took everything; else the number of newest requests
// that it did not take, with the negative errno in completions[0].
napi_value asyncRingSubmit(napi_env env, napi_callback_info info) {
  Arguments<1> arguments;
  if (!arguments.read(env, info)) return nullptr;
  AsyncRing* ring = getRing(env, arguments[0]);
  if (ring == nullptr) return nullptr;
  if (ring->closed) {
    throwRangeError(env, "the ring is closed");
    return nullptr;
  }
  unsigned dropped = 0;
  const int status = ring->session.submit(env, 0, &dropped);
  if (status != 0) ring->session.completions()[0] = status;
  if (ring->session.ring().inFlight() > 0) uv::uv_ref(ring->poll);
  napi_value value;
  return napi_create_uint32(env, dropped, &value) == napi_ok ? value : nullptr;
}

// asyncRingClose(handle). What is in flight is waited for and its results are forgotten.
napi_value asyncRingClose(napi_env env, napi_callback_info info) {
  Arguments<1> arguments;
  if (!arguments.read(env, info)) return nullptr;
  AsyncRing* ring = getRing(env, arguments[0]);
  if (ring != nullptr) closeRing(ring);
  return nullptr;
}

}  // namespace

void registerAsyncRing(napi_env env, napi_value exports) {
  exportFunction(env, exports, "asyncRingCreate", asyncRingCreate);
  exportFunction(env, exports, "asyncRingPush", asyncRingPush);
  exportFunction(env, exports, "asyncRingSubmit", asyncRingSubmit);
  exportFunction(env, exports, "asyncRingClose", asyncRingClose);
}

}  // namespace spillway

#include "ring-sync.h"

#include "napi-helpers.h"
#include "ring-session.h"

namespace spillway {

namespace {

const napi_type_tag kSyncRingTag = {0x7370696c6c776179, 0x73796e6372696e67};

void finalizeSyncRing(napi_env env, void* data, void*) {
  auto* session = static_cast<RingSession*>(data);
  session->release(env);
  delete session;
}

RingSession* getSession(napi_env env, napi_value handle) {
  bool tagged = false;
  void* data = nullptr;
  if (napi_check_object_type_tag(env, handle, &kSyncRingTag, &tagged) == napi_ok && tagged &&
      napi_unwrap(env, handle, &data) == napi_ok) {
    return static_cast<RingSession*>(data);
  }
  throwTypeError(env, "handle must come from syncRingCreate");
  return nullptr;
}

// syncRingCreate(depth, completions): handle
napi_value syncRingCreate(napi_env env, napi_callback_info info) {
  Arguments<2> arguments;
  if (!arguments.read(env, info)) return nullptr;
  auto* session = new RingSession();
  napi_value handle;
  if (!session->open(env, arguments[0], arguments[1], RingUse::kBlocking)) {
    delete session;
    return nullptr;
  }
  if (napi_create_object(env, &handle) != napi_ok ||
      napi_type_tag_object(env, handle, &kSyncRingTag) != napi_ok ||
      napi_wrap(env, handle, session, finalizeSyncRing, nullptr, nullptr) != napi_ok) {
    finalizeSyncRing(env, session, nullptr);
    throwTypeError(env, "the handle cannot be created");
    return nullptr;
  }
  return handle;
}

// syncRingPush(handle, slot, op, fd, offset, view)
napi_value syncRingPush(napi_env env, napi_callback_info info) {
  Arguments<6> arguments;
  if (!arguments.read(env, info)) return nullptr;
  RingSession* session = getSession(env, arguments[0]);
  if (session != nullptr) session->push(env, arguments.values + 1);
  return nullptr;
}

// syncRingWait(handle, minComplete): number of pairs written, or the negative errno of a failed
// submission, whose requests are then forgotten.
napi_value syncRingWait(napi_env env, napi_callback_info info) {
  Arguments<2> arguments;
  if (!arguments.read(env, info)) return nullptr;
  RingSession* session = getSession(env, arguments[0]);
  if (session == nullptr) return nullptr;
  uint32_t minComplete = 0;
  if (session->closed() || napi_get_value_uint32(env, arguments[1], &minComplete) != napi_ok) {
    throwRangeError(env, "the ring is closed, or minComplete is no number");
    return nullptr;
  }
  unsigned dropped = 0;
  const int status = session->submit(env, minComplete, &dropped);
  const int result = status != 0 ? status : static_cast<int>(session->writeCompletions(env));
  napi_value value;
  return napi_create_int32(env, result, &value) == napi_ok ? value : nullptr;
}

// syncRingClose(handle)
napi_value syncRingClose(napi_env env, napi_callback_info info) {
  Arguments<1> arguments;
  if (!arguments.read(env, info)) return nullptr;
  RingSession* session = getSession(env, arguments[0]);
  if (session != nullptr) session->release(env);
  return nullptr;
}

}  // namespace

void registerSyncRing(napi_env env, napi_value exports) {
  exportFunction(env, exports, "syncRingCreate", syncRingCreate);
  exportFunction(env, exports, "syncRingPush", syncRingPush);
  exportFunction(env, exports, "syncRingWait", syncRingWait);
  exportFunction(env, exports, "syncRingClose", syncRingClose);
}

}  // namespace spillway

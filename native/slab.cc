#include "slab.h"

#include <cerrno>

#include "napi-helpers.h"

#ifndef _WIN32
#include <sys/mman.h>
#endif

namespace spillway {

namespace {

// Numbers shared with tiers/host/slab.ts.
enum class Advice : uint32_t { kHugePages = 0, kDiscard = 1 };

int advise(void* data, size_t length, Advice advice) {
#ifdef __linux__
  // MADV_DONTNEED gives the pages back; the next touch finds zeros.
  const int flag = advice == Advice::kHugePages ? MADV_HUGEPAGE : MADV_DONTNEED;
  return madvise(data, length, flag) == 0 ? 0 : errno;
#else
  (void)data, (void)length, (void)advice;
  return ENOSYS;
#endif
}

// slabAddress(view): its first byte's address; below 2^53 on every supported platform.
napi_value slabAddress(napi_env env, napi_callback_info info) {
  Arguments<1> arguments;
  Span<uint8_t> view;
  if (!arguments.read(env, info) || !getSpan(env, arguments[0], "view", &view)) return nullptr;
  napi_value result;
  const auto address = static_cast<double>(reinterpret_cast<uintptr_t>(view.data));
  return napi_create_double(env, address, &result) == napi_ok ? result : nullptr;
}

// slabAdvise(view, advice): 0 or an errno; the view starts and ends at page boundaries.
napi_value slabAdvise(napi_env env, napi_callback_info info) {
  Arguments<2> arguments;
  Span<uint8_t> view;
  uint32_t advice = 0;
  if (!arguments.read(env, info) || !getSpan(env, arguments[0], "view", &view)) return nullptr;
  if (napi_get_value_uint32(env, arguments[1], &advice) != napi_ok || advice > 1) {
    throwRangeError(env, "advice must be 0 (huge pages) or 1 (discard)");
    return nullptr;
  }
  napi_value result;
  const int status = advise(view.data, view.length, static_cast<Advice>(advice));
  return napi_create_int32(env, status, &result) == napi_ok ? result : nullptr;
}

}  // namespace

void registerSlab(napi_env env, napi_value exports) {
  exportFunction(env, exports, "slabAddress", slabAddress);
  exportFunction(env, exports, "slabAdvise", slabAdvise);
}

}  // namespace spillway

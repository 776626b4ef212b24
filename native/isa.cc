#include "isa.h"

#include <atomic>
#include <cstring>

namespace spillway {
namespace {

constexpr struct {
  Isa isa;
  const char* name;
} kIsas[] = {
    {Isa::avx512, "avx512"}, {Isa::avx2, "avx2"}, {Isa::neon, "neon"}, {Isa::portable, "portable"}};

bool isSupported(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return true;
    case Isa::neon:
#if defined(__aarch64__)
      return true;
#else
      return false;
#endif
    case Isa::avx2:
#if SPILLWAY_X86
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi2");
#else
      return false;
#endif
    case Isa::avx512:
#if SPILLWAY_X86
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             isSupported(Isa::avx2);
#else
      return false;
#endif
  }
  return false;
}

Isa detect() {
  for (const auto& entry : kIsas) {
    if (isSupported(entry.isa)) return entry.isa;
  }
  return Isa::portable;
}

std::atomic<Isa>& pick() {
  static std::atomic<Isa> value{detect()};
  return value;
}

napi_value isaName(napi_env env, Isa isa) {
  napi_value result = nullptr;
  for (const auto& entry : kIsas) {
    if (entry.isa == isa) napi_create_string_utf8(env, entry.name, NAPI_AUTO_LENGTH, &result);
  }
  return result;
}

// isa(): string
napi_value isa(napi_env env, napi_callback_info) { return isaName(env, currentIsa()); }

// setIsa(name: string): void. RangeError when this CPU lacks it.
napi_value setIsa(napi_env env, napi_callback_info info) {
  Arguments<1> arguments;
  if (!arguments.read(env, info)) return nullptr;
  char name[16];
  size_t length = 0;
  if (napi_get_value_string_utf8(env, arguments[0], name, sizeof name, &length) != napi_ok) {
    throwTypeError(env, "isa must be a string");
    return nullptr;
  }
  for (const auto& entry : kIsas) {
    if (std::strcmp(entry.name, name) == 0 && isSupported(entry.isa)) {
      pick().store(entry.isa, std::memory_order_relaxed);
      return nullptr;
    }
  }
  throwRangeError(env, "this CPU does not offer that instruction set");
  return nullptr;
}

// isaList(): string[], best first; what this CPU supports.
napi_value isaList(napi_env env, napi_callback_info) {
  napi_value result;
  if (napi_create_array(env, &result) != napi_ok) return nullptr;
  uint32_t count = 0;
  for (const auto& entry : kIsas) {
    if (isSupported(entry.isa)) napi_set_element(env, result, count++, isaName(env, entry.isa));
  }
  return result;
}

}  // namespace

Isa currentIsa() { return pick().load(std::memory_order_relaxed); }

void registerIsa(napi_env env, napi_value exports) {
  exportFunction(env, exports, "isa", isa);
  exportFunction(env, exports, "setIsa", setIsa);
  exportFunction(env, exports, "isaList", isaList);
}

}  // namespace spillway

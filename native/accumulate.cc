#include "accumulate.h"

namespace spillway {
namespace {

SPILLWAY_BODY void accumulateBody(float* __restrict target, const float* __restrict source,
                                  size_t length) {
  for (size_t i = 0; i < length; ++i) target[i] += source[i];
}

SPILLWAY_VERSIONS(accumulate, (float* target, const float* source, size_t length),
                  (target, source, length))

// accumulate(target: Float32Array, source: Float32Array): void
napi_value accumulateExport(napi_env env, napi_callback_info info) {
  Arguments<2> arguments;
  Span<float> target, source;
  if (arguments.read(env, info) && getSpan(env, arguments[0], "target", &target) &&
      getSpan(env, arguments[1], "source", &source) &&
      checkLength(env, "source", source.length, target.length)) {
    accumulate(target.data, source.data, target.length);
  }
  return nullptr;
}

}  // namespace

void registerAccumulate(napi_env env, napi_value exports) {
  exportFunction(env, exports, "accumulate", accumulateExport);
}

}  // namespace spillway

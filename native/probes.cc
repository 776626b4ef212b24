#include "probes.h"

#include <algorithm>
#include <cmath>

#include "blocks.h"

namespace spillway {
namespace {

SPILLWAY_BODY void fusedMultiplyAddBody(const float* a, const float* b, const float* c, float* out,
                                        size_t length) {
  for (size_t i = 0; i < length; ++i) out[i] = std::fma(a[i], b[i], c[i]);
}

// Elements per block of the traffic loop; so short as AdamW's they make it slower.
constexpr size_t kBlockElements = 64;

// The memory traffic of AdamW with next to no arithmetic: reads four arrays, writes three, and
// fetches as far ahead as AdamW does.
SPILLWAY_BODY void adamwTrafficBody(float* __restrict param, const float* __restrict grad,
                                    float* __restrict expAvg, float* __restrict expAvgSq,
                                    size_t length) {
  for (size_t start = 0; start < length; start += kBlockElements) {
    prefetchBlock<kBlockElements>(param, start + kPrefetchElements);
    prefetchBlock<kBlockElements>(grad, start + kPrefetchElements);
    prefetchBlock<kBlockElements>(expAvg, start + kPrefetchElements);
    prefetchBlock<kBlockElements>(expAvgSq, start + kPrefetchElements);
    const size_t end = std::min(length, start + kBlockElements);
    for (size_t i = start; i < end; ++i) {
      const float g = grad[i];
      param[i] += g;
      expAvg[i] += g;
      expAvgSq[i] += g;
    }
  }
}

SPILLWAY_VERSIONS(fusedMultiplyAdd,
                  (const float* a, const float* b, const float* c, float* out, size_t length),
                  (a, b, c, out, length))
SPILLWAY_VERSIONS(adamwTraffic,
                  (float* param, const float* grad, float* expAvg, float* expAvgSq, size_t length),
                  (param, grad, expAvg, expAvgSq, length))

bool getFour(napi_env env, napi_callback_info info, Span<float> (&spans)[4]) {
  Arguments<4> arguments;
  if (!arguments.read(env, info)) return false;
  for (size_t i = 0; i < 4; ++i) {
    if (!getSpan(env, arguments[i], "each argument", &spans[i]) ||
        !checkLength(env, "each argument", spans[i].length, spans[0].length)) {
      return false;
    }
  }
  return true;
}

// fusedMultiplyAdd(a, b, c, out: Float32Array): void; out[i] = fmaf(a[i], b[i], c[i])
napi_value fusedMultiplyAddExport(napi_env env, napi_callback_info info) {
  Span<float> spans[4];
  if (getFour(env, info, spans)) {
    fusedMultiplyAdd(spans[0].data, spans[1].data, spans[2].data, spans[3].data, spans[0].length);
  }
  return nullptr;
}

// adamwTraffic(param, grad, expAvg, expAvgSq: Float32Array): void
napi_value adamwTrafficExport(napi_env env, napi_callback_info info) {
  Span<float> spans[4];
  if (getFour(env, info, spans)) {
    adamwTraffic(spans[0].data, spans[1].data, spans[2].data, spans[3].data, spans[0].length);
  }
  return nullptr;
}

}  // namespace

void registerProbes(napi_env env, napi_value exports) {
  exportFunction(env, exports, "fusedMultiplyAdd", fusedMultiplyAddExport);
  exportFunction(env, exports, "adamwTraffic", adamwTrafficExport);
}

}  // namespace spillway

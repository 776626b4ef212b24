#include "adamw.h"

#include <cmath>

#include "blocks.h"
#include "split-master.h"

namespace spillway {
namespace {

// Elements per block: a cache line of each float array.
constexpr size_t kBlockElements = 16;

// What the update multiplies with; each float32, derived once in TypeScript
// (tiers/native/portable/adamw-factors.ts), so that both sides start from the same numbers.
struct Factors {
  float gradScale;
  // exp_avg = fma(lerpWeight, g - m, lerpFromGrad ? g : m)
  float lerpWeight;
  bool lerpFromGrad;
  float beta2;
  float oneMinusBeta2;
  float sqrtBiasCorrection2;
  float epsilon;
  float decay;
  float negativeStepSize;
};

// Updates the moments in place and returns the new parameter. The lerp's start is a template
// argument: a choice inside the loop would keep gcc from vectorising it.
template <bool lerpFromGrad>
SPILLWAY_BODY float update(float param, float grad, float* expAvg, float* expAvgSq,
                           const Factors& f) {
  const float g = grad * f.gradScale;
  const float decayed = param * f.decay;
  const float oldM = *expAvg;
  const float m = std::fma(f.lerpWeight, g - oldM, lerpFromGrad ? g : oldM);
  const float v = std::fma(f.oneMinusBeta2 * g, g, *expAvgSq * f.beta2);
  *expAvg = m;
  *expAvgSq = v;
  const float denominator = std::sqrt(v) / f.sqrtBiasCorrection2 + f.epsilon;
  return decayed + (f.negativeStepSize * m) / denominator;
}

// Elements `start` .. `start + count`.
template <bool lerpFromGrad>
SPILLWAY_BODY void adamwRange(float* __restrict param, const float* __restrict grad,
                              float* __restrict expAvg, float* __restrict expAvgSq, size_t start,
                              size_t count, const Factors& factors) {
  for (size_t i = start; i < start + count; ++i) {
    param[i] = update<lerpFromGrad>(param[i], grad[i], &expAvg[i], &expAvgSq[i], factors);
  }
}

template <bool lerpFromGrad>
SPILLWAY_BODY void adamwLoop(float* __restrict param, const float* __restrict grad,
                             float* __restrict expAvg, float* __restrict expAvgSq, size_t length,
                             const Factors factors) {
  size_t start = 0;
  for (; length - start >= kBlockElements; start += kBlockElements) {
    prefetchBlock<kBlockElements>(param, start + kPrefetchElements);
    prefetchBlock<kBlockElements>(grad, start + kPrefetchElements);
    prefetchBlock<kBlockElements>(expAvg, start + kPrefetchElements);
    prefetchBlock<kBlockElements>(expAvgSq, start + kPrefetchElements);
    adamwRange<lerpFromGrad>(param, grad, expAvg, expAvgSq, start, kBlockElements, factors);
  }
  adamwRange<lerpFromGrad>(param, grad, expAvg, expAvgSq, start, length - start, factors);
}

SPILLWAY_BODY void adamwBody(float* param, const float* grad, float* expAvg, float* expAvgSq,
                             size_t length, const Factors& factors) {
  if (factors.lerpFromGrad) {
    adamwLoop<true>(param, grad, expAvg, expAvgSq, length, factors);
  } else {
    adamwLoop<false>(param, grad, expAvg, expAvgSq, length, factors);
  }
}

// Elements `start` .. `start + count`.
template <bool lerpFromGrad>
SPILLWAY_BODY void adamwSplitRange(uint16_t* __restrict param, uint16_t* __restrict low,
                                   const float* __restrict grad, float* __restrict expAvg,
                                   float* __restrict expAvgSq, size_t start, size_t count,
                                   const Factors& factors) {
  for (size_t i = start; i < start + count; ++i) {
    const float master = floatOf(joinBits(param[i], low[i]));
    const float next = update<lerpFromGrad>(master, grad[i], &expAvg[i], &expAvgSq[i], factors);
    const uint32_t bits = splittableBits(bitsOf(next));
    param[i] = splitHigh(bits);
    low[i] = static_cast<uint16_t>(bits);
  }
}

template <bool lerpFromGrad>
SPILLWAY_BODY void adamwSplitLoop(uint16_t* __restrict param, uint16_t* __restrict low,
                                  const float* __restrict grad, float* __restrict expAvg,
                                  float* __restrict expAvgSq, size_t length,
                                  const Factors factors) {
  size_t start = 0;
  for (; length - start >= kBlockElements; start += kBlockElements) {
    prefetchBlock<kBlockElements>(param, start + kPrefetchElements);
    prefetchBlock<kBlockElements>(low, start + kPrefetchElements);
    prefetchBlock<kBlockElements>(grad, start + kPrefetchElements);
    prefetchBlock<kBlockElements>(expAvg, start + kPrefetchElements);
    prefetchBlock<kBlockElements>(expAvgSq, start + kPrefetchElements);
    adamwSplitRange<lerpFromGrad>(param, low, grad, expAvg, expAvgSq, start, kBlockElements,
                                  factors);
  }
  adamwSplitRange<lerpFromGrad>(param, low, grad, expAvg, expAvgSq, start, length - start,
                                factors);
}

SPILLWAY_BODY void adamwSplitBody(uint16_t* param, uint16_t* low, const float* grad, float* expAvg,
                                  float* expAvgSq, size_t length, const Factors& factors) {
  if (factors.lerpFromGrad) {
    adamwSplitLoop<true>(param, low, grad, expAvg, expAvgSq, length, factors);
  } else {
    adamwSplitLoop<false>(param, low, grad, expAvg, expAvgSq, length, factors);
  }
}

SPILLWAY_VERSIONS(adamw,
                  (float* param, const float* grad, float* expAvg, float* expAvgSq, size_t length,
                   const Factors& factors),
                  (param, grad, expAvg, expAvgSq, length, factors))
SPILLWAY_VERSIONS(adamwSplit,
                  (uint16_t* param, uint16_t* low, const float* grad, float* expAvg,
                   float* expAvgSq, size_t length, const Factors& factors),
                  (param, low, grad, expAvg, expAvgSq, length, factors))

bool getFloat(napi_env env, napi_value object, const char* name, float* out) {
  double value = 0;
  if (!getDoubleProperty(env, object, name, &value)) return false;
  *out = static_cast<float>(value);
  return true;
}

bool getFactors(napi_env env, napi_value object, Factors* out) {
  napi_value lerpFromGrad;
  if (!getFloat(env, object, "gradScale", &out->gradScale) ||
      !getFloat(env, object, "lerpWeight", &out->lerpWeight) ||
      !getFloat(env, object, "beta2", &out->beta2) ||
      !getFloat(env, object, "oneMinusBeta2", &out->oneMinusBeta2) ||
      !getFloat(env, object, "sqrtBiasCorrection2", &out->sqrtBiasCorrection2) ||
      !getFloat(env, object, "epsilon", &out->epsilon) ||
      !getFloat(env, object, "decay", &out->decay) ||
      !getFloat(env, object, "negativeStepSize", &out->negativeStepSize)) {
    return false;
  }
  if (napi_get_named_property(env, object, "lerpFromGrad", &lerpFromGrad) == napi_ok &&
      napi_get_value_bool(env, lerpFromGrad, &out->lerpFromGrad) == napi_ok) {
    return true;
  }
  throwTypeError(env, "lerpFromGrad must be a boolean");
  return false;
}

// adamw(param, grad, expAvg, expAvgSq: Float32Array, factors: AdamwFactors): void
napi_value adamwExport(napi_env env, napi_callback_info info) {
  Arguments<5> arguments;
  Span<float> param, grad, expAvg, expAvgSq;
  Factors factors;
  if (arguments.read(env, info) && getSpan(env, arguments[0], "param", &param) &&
      getSpan(env, arguments[1], "grad", &grad) && getSpan(env, arguments[2], "expAvg", &expAvg) &&
      getSpan(env, arguments[3], "expAvgSq", &expAvgSq) &&
      getFactors(env, arguments[4], &factors) &&
      checkLength(env, "grad", grad.length, param.length) &&
      checkLength(env, "expAvg", expAvg.length, param.length) &&
      checkLength(env, "expAvgSq", expAvgSq.length, param.length)) {
    adamw(param.data, grad.data, expAvg.data, expAvgSq.data, param.length, factors);
  }
  return nullptr;
}

// adamwSplit(param, masterLo: Uint16Array, grad, expAvg, expAvgSq: Float32Array,
//            factors: AdamwFactors): void
napi_value adamwSplitExport(napi_env env, napi_callback_info info) {
  Arguments<6> arguments;
  Span<uint16_t> param, low;
  Span<float> grad, expAvg, expAvgSq;
  Factors factors;
  if (arguments.read(env, info) && getSpan(env, arguments[0], "param", &param) &&
      getSpan(env, arguments[1], "masterLo", &low) && getSpan(env, arguments[2], "grad", &grad) &&
      getSpan(env, arguments[3], "expAvg", &expAvg) &&
      getSpan(env, arguments[4], "expAvgSq", &expAvgSq) &&
      getFactors(env, arguments[5], &factors) &&
      checkLength(env, "masterLo", low.length, param.length) &&
      checkLength(env, "grad", grad.length, param.length) &&
      checkLength(env, "expAvg", expAvg.length, param.length) &&
      checkLength(env, "expAvgSq", expAvgSq.length, param.length)) {
    adamwSplit(param.data, low.data, grad.data, expAvg.data, expAvgSq.data, param.length, factors);
  }
  return nullptr;
}

}  // namespace

void registerAdamw(napi_env env, napi_value exports) {
  exportFunction(env, exports, "adamw", adamwExport);
  exportFunction(env, exports, "adamwSplit", adamwSplitExport);
}

}  // namespace spillway

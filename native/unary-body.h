// Elementwise kernels of one operand: args [x, out, count, parameters…]. See unary.cc.
#include "simd.h"
#include "simd-math.h"
#include "simd-access.h"

namespace spillway {
namespace SPILLWAY_SIMD {

// Elements per piece below which another thread does not pay.
constexpr size_t kUnaryGrain = 16384;

template <class In, class Out, class Operation>
void runUnary(KernelCall& call, Operation operation) {
  const In* x = call.ptr<In>(0);
  Out* out = call.ptr<Out>(1);
  call.pool.parallelFor(size_t(call.i(2)), kUnaryGrain, [&](size_t begin, size_t end) {
    forLanes(begin, end, [&](size_t i, size_t n) { put(out + i, operation(get(x + i, n)), n); });
  });
}

#define SPILLWAY_UNARY(name, In, Out, expression) \
  void name(KernelCall& call) {                   \
    runUnary<In, Out>(call, [&](auto x) { return expression; }); \
  }

SPILLWAY_UNARY(absFloat, float, float, abs(x))
SPILLWAY_UNARY(negFloat, float, float, neg(x))
SPILLWAY_UNARY(squareFloat, float, float, x * x)
SPILLWAY_UNARY(sqrtFloat, float, float, sqrt(x))
SPILLWAY_UNARY(rsqrtFloat, float, float, rsqrt(x))
SPILLWAY_UNARY(reciprocalFloat, float, float, splat(1.0f) / x)
SPILLWAY_UNARY(floorFloat, float, float, floor(x))
SPILLWAY_UNARY(ceilFloat, float, float, ceil(x))
SPILLWAY_UNARY(roundFloat, float, float, round(x))
SPILLWAY_UNARY(expFloat, float, float, exp(x))
SPILLWAY_UNARY(expm1Float, float, float, expm1(x))
SPILLWAY_UNARY(logFloat, float, float, log(x))
SPILLWAY_UNARY(log1pFloat, float, float, log1p(x))
SPILLWAY_UNARY(sinFloat, float, float, sin(x))
SPILLWAY_UNARY(cosFloat, float, float, cos(x))
SPILLWAY_UNARY(tanhFloat, float, float, tanh(x))
SPILLWAY_UNARY(sigmoidFloat, float, float, sigmoid(x))
SPILLWAY_UNARY(softplusFloat, float, float, softplus(x))
SPILLWAY_UNARY(erfFloat, float, float, erf(x))
SPILLWAY_UNARY(reluFloat, float, float, max(splat(0.0f), x))
SPILLWAY_UNARY(relu6Float, float, float, min(splat(6.0f), max(splat(0.0f), x)))
SPILLWAY_UNARY(eluFloat, float, float, select(ge(x, splat(0.0f)), x, expm1(x)))
SPILLWAY_UNARY(leakyReluFloat, float, float,
               select(lt(x, splat(0.0f)), x * splat(call.f(3)), x))
SPILLWAY_UNARY(clipFloat, float, float, min(splat(call.f(4)), max(splat(call.f(3)), x)))
SPILLWAY_UNARY(stepFloat, float, float,
               select(ne(x, x), x, select(gt(x, splat(0.0f)), splat(1.0f), splat(call.f(3)))))
// 0 for both zeros and for NaN, as tfjs has it.
SPILLWAY_UNARY(signFloat, float, float,
               select(gt(x, splat(0.0f)), splat(1.0f),
                      select(lt(x, splat(0.0f)), splat(-1.0f), splat(0.0f))))
SPILLWAY_UNARY(isNanFloat, float, uint8_t, ne(x, x))
SPILLWAY_UNARY(isInfFloat, float, uint8_t, eq(abs(x), splat(__builtin_inff())))
SPILLWAY_UNARY(isFiniteFloat, float, uint8_t, lt(abs(x), splat(__builtin_inff())))

SPILLWAY_UNARY(absInt, int32_t, int32_t, max(x, splatI(0) - x))
SPILLWAY_UNARY(negInt, int32_t, int32_t, splatI(0) - x)
SPILLWAY_UNARY(reluInt, int32_t, int32_t, max(x, splatI(0)))
SPILLWAY_UNARY(signInt, int32_t, int32_t, min(max(x, splatI(-1)), splatI(1)))
SPILLWAY_UNARY(logicalNotBool, uint8_t, uint8_t, eq(x, splatI(0)))

SPILLWAY_UNARY(castIntFloat, int32_t, float, toFloat(x))
SPILLWAY_UNARY(castBoolFloat, uint8_t, float, toFloat(x))
SPILLWAY_UNARY(castBoolInt, uint8_t, int32_t, x)
SPILLWAY_UNARY(castIntBool, int32_t, uint8_t, ne(x, splatI(0)))
SPILLWAY_UNARY(castFloatBool, float, uint8_t, ne(x, splat(0.0f)))

#undef SPILLWAY_UNARY

void castFloatInt(KernelCall& call) {
  runUnary<float, int32_t>(call, [](F16 x) {
    const I16 result = toInt(x);
    if (all(lt(abs(x), splat(2147483648.0f)))) return result;
    float values[16];
    int32_t results[16];
    store(values, x);
    for (int i = 0; i < 16; ++i) results[i] = scriptInt(double(values[i]));
    return load(results);
  });
}

// args [out, count, inputCount, inputs…]; ((x0 + x1) + x2) + …, each rounded.
template <class T>
void runAddN(KernelCall& call) {
  T* out = call.ptr<T>(0);
  const size_t inputs = size_t(call.i(2));
  call.pool.parallelFor(size_t(call.i(1)), kUnaryGrain, [&](size_t begin, size_t end) {
    forLanes(begin, end, [&](size_t i, size_t n) {
      auto sum = get(call.ptr<T>(3) + i, n);
      for (size_t k = 1; k < inputs; ++k) sum = sum + get(call.ptr<T>(3 + k) + i, n);
      put(out + i, sum, n);
    });
  });
}
void addNFloat(KernelCall& call) { runAddN<float>(call); }
void addNInt(KernelCall& call) { runAddN<int32_t>(call); }

// args [condition, t, e, out, count, inner]; each element of condition decides over `inner` ones.
template <class T>
void runSelect(KernelCall& call) {
  const uint8_t* condition = call.ptr<uint8_t>(0);
  const T* t = call.ptr<T>(1);
  const T* e = call.ptr<T>(2);
  T* out = call.ptr<T>(3);
  const size_t inner = size_t(call.i(5));
  const size_t grain = 1 + kUnaryGrain / inner;
  call.pool.parallelFor(size_t(call.i(4)), grain, [&](size_t begin, size_t end) {
    if (inner != 1) {
      for (size_t i = begin; i < end; ++i) {
        std::memcpy(out + i * inner, (condition[i] ? t : e) + i * inner, inner * sizeof(T));
      }
      return;
    }
    if constexpr (sizeof(T) == 1) {
      for (size_t i = begin; i < end; ++i) out[i] = condition[i] ? t[i] : e[i];
    } else {
      forLanes(begin, end, [&](size_t i, size_t n) {
        put(out + i, select(maskOfBytes(condition + i, n), get(t + i, n), get(e + i, n)), n);
      });
    }
  });
}
void selectWord(KernelCall& call) { runSelect<int32_t>(call); }
void selectBool(KernelCall& call) { runSelect<uint8_t>(call); }

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

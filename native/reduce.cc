// Reductions: Sum, Mean, Max, Min, Prod, All, Any, ArgMax, ArgMin, and softmax over rows.
//
// A tensor is seen as [outer, reduced, inner]; TypeScript transposes what does not fit. The order of
// a sum is a function of these three numbers alone.
#include "script-number.h"
#define SPILLWAY_BODY_FILE "reduce-body.h"
#include "simd-targets.h"

namespace spillway {

SPILLWAY_KERNEL_PER_ISA(sumFloat)
SPILLWAY_KERNEL_PER_ISA(maxFloat)
SPILLWAY_KERNEL_PER_ISA(minFloat)
SPILLWAY_KERNEL_PER_ISA(softmaxFloat)
SPILLWAY_KERNEL_PER_ISA(logSoftmaxFloat)

namespace {

constexpr size_t kGrain = 16384;

// args [x, out, outer, reduced, inner]; out = finish(state after step(state, x) over the values).
template <class In, class Out, class State, class Step, class Finish>
void reduceEach(KernelCall& call, State start, Step step, Finish finish) {
  const In* x = call.ptr<In>(0);
  Out* out = call.ptr<Out>(1);
  const size_t outer = static_cast<size_t>(call.i(2));
  const size_t reduced = static_cast<size_t>(call.i(3));
  const size_t inner = static_cast<size_t>(call.i(4));
  const size_t grain = 1 + kGrain / (reduced == 0 ? 1 : reduced);
  call.pool.parallelFor(outer * inner, grain, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const In* column = x + i / inner * reduced * inner + i % inner;
      State state = start;
      for (size_t r = 0; r < reduced; ++r) step(state, column[r * inner], r);
      finish(out + i, state);
    }
  });
}

// tfjs sums numbers; up to 2^53 these are the exact integer, which then wraps to 32 bits.
template <class In>
void sumWhole(KernelCall& call) {
  reduceEach<In, int32_t>(
      call, int64_t{0}, [](int64_t& sum, In x, size_t) { sum += x; },
      [](int32_t* out, int64_t sum) {
        *out = static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(sum)));
      });
}

template <class In, class Out>
void product(KernelCall& call) {
  reduceEach<In, Out>(
      call, 1.0, [](double& all, In x, size_t) { all *= static_cast<double>(x); },
      [](Out* out, double all) { assignScript(out, all); });
}

// 0 where there are no values, as tfjs leaves it.
template <class T, bool kLargest>
void extremeWhole(KernelCall& call) {
  reduceEach<T, T>(
      call, T{0},
      [](T& best, T x, size_t r) {
        if (r == 0 || (kLargest ? x > best : x < best)) best = x;
      },
      [](T* out, T best) { *out = best; });
}

// The first of the largest (smallest) values; a NaN is never better than what came before it.
template <class T, bool kLargest>
void argExtreme(KernelCall& call) {
  struct Best {
    T value;
    size_t index;
  };
  reduceEach<T, int32_t>(
      call, Best{T{0}, 0},
      [](Best& best, T x, size_t r) {
        if (r == 0 || (kLargest ? x > best.value : x < best.value)) best = {x, r};
      },
      [](int32_t* out, const Best& best) { *out = static_cast<int32_t>(best.index); });
}

}  // namespace

SPILLWAY_KERNEL(sumInt) { sumWhole<int32_t>(call); }
SPILLWAY_KERNEL(sumBool) { sumWhole<uint8_t>(call); }
SPILLWAY_KERNEL(prodFloat) { product<float, float>(call); }
SPILLWAY_KERNEL(prodInt) { product<int32_t, int32_t>(call); }
SPILLWAY_KERNEL(prodBool) { product<uint8_t, int32_t>(call); }
SPILLWAY_KERNEL(maxInt) { extremeWhole<int32_t, true>(call); }
SPILLWAY_KERNEL(maxBool) { extremeWhole<uint8_t, true>(call); }
SPILLWAY_KERNEL(minInt) { extremeWhole<int32_t, false>(call); }
SPILLWAY_KERNEL(minBool) { extremeWhole<uint8_t, false>(call); }
SPILLWAY_KERNEL(argMaxFloat) { argExtreme<float, true>(call); }
SPILLWAY_KERNEL(argMaxInt) { argExtreme<int32_t, true>(call); }
SPILLWAY_KERNEL(argMaxBool) { argExtreme<uint8_t, true>(call); }
SPILLWAY_KERNEL(argMinFloat) { argExtreme<float, false>(call); }
SPILLWAY_KERNEL(argMinInt) { argExtreme<int32_t, false>(call); }
SPILLWAY_KERNEL(argMinBool) { argExtreme<uint8_t, false>(call); }
SPILLWAY_KERNEL(allBool) {
  reduceEach<uint8_t, uint8_t>(
      call, uint8_t{1}, [](uint8_t& all, uint8_t x, size_t) { all &= x != 0; },
      [](uint8_t* out, uint8_t all) { *out = all; });
}
SPILLWAY_KERNEL(anyBool) {
  reduceEach<uint8_t, uint8_t>(
      call, uint8_t{0}, [](uint8_t& any, uint8_t x, size_t) { any |= x != 0; },
      [](uint8_t* out, uint8_t any) { *out = any; });
}

}  // namespace spillway

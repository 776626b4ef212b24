// LayerNorm and RMSNorm over rows [N, C], forward and backward.
//
//     y = x̂·weight (+ bias),  x̂ = (x - mean)·rstd,  rstd = 1/√(mean((x - mean)²) + eps)
//     g = dy·weight,  dx = rstd·(g - mean(g) - x̂·mean(g·x̂)),  dWeight = Σ over rows dy·x̂
//
// RMSNorm is the same with every mean of x and of g left out. Sums over a row run in 16 lanes,
// which are added ascending in double; sums over rows run per column, by groups of 64 rows.
#include "kernel.h"

namespace spillway {
namespace {

struct NormForward {
  const float *x, *weight, *bias;
  float *y, *mean, *rstd;  // mean is null for RMSNorm, and bias then too
  size_t rows, width;
  double epsilon;
};

struct NormGrad {
  const float *dy, *x, *weight, *mean, *rstd;
  float* out;
  size_t rows, width;
};

// Vectors of 16 columns per task of a sum over rows: four cache lines of each row.
constexpr size_t kStripeVectors = 4;

// Rows per partial sum, so that a sum over many rows does not lose what one addition loses each
// time.
constexpr size_t kRowsPerSum = 64;

// Elements below which a second thread costs more than it saves.
constexpr size_t kGrain = 1 << 14;

inline size_t rowGrain(size_t width) { return 1 + kGrain / width; }

}  // namespace
}  // namespace spillway

#define SPILLWAY_BODY_FILE "fused-norm-body.h"
#include "simd-targets.h"

namespace spillway {
namespace {

float* optional(const KernelCall& call, size_t index) {
  return call.i(index) < 0 ? nullptr : call.ptr<float>(index);
}

void runForward(const NormForward& call, ThreadPool& pool) {
  SPILLWAY_DISPATCH(normForward, (call, pool));
}
void runGradInput(const NormGrad& call, ThreadPool& pool) {
  SPILLWAY_DISPATCH(normGradInput, (call, pool));
}
void runGradScale(const NormGrad& call, ThreadPool& pool) {
  SPILLWAY_DISPATCH(normGradScale, (call, pool));
}

}  // namespace

// norm(x, weight, bias or -1, y, mean or -1, rstd, rows, width, epsilon)
SPILLWAY_KERNEL(norm) {
  runForward({call.ptr<float>(0), call.ptr<float>(1), optional(call, 2), call.ptr<float>(3),
              optional(call, 4), call.ptr<float>(5), size_t(call.i(6)), size_t(call.i(7)),
              call.d(8)},
             call.pool);
}

// normGradX(dy, x, weight, mean or -1, rstd, dx, rows, width)
SPILLWAY_KERNEL(normGradX) {
  runGradInput({call.ptr<float>(0), call.ptr<float>(1), call.ptr<float>(2), optional(call, 3),
                call.ptr<float>(4), call.ptr<float>(5), size_t(call.i(6)), size_t(call.i(7))},
               call.pool);
}

// normGradWeight(dy, x, mean or -1, rstd, dWeight, rows, width)
SPILLWAY_KERNEL(normGradWeight) {
  runGradScale({call.ptr<float>(0), call.ptr<float>(1), nullptr, optional(call, 2),
                call.ptr<float>(3), call.ptr<float>(4), size_t(call.i(5)), size_t(call.i(6))},
               call.pool);
}

}  // namespace spillway

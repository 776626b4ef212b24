// Body file of fused-norm.cc, once per instruction set.
#include "simd.h"

namespace spillway {
namespace SPILLWAY_SIMD {

SPILLWAY_BODY size_t lanesFrom(size_t column, size_t width) {
  return width - column < 16 ? width - column : 16;
}

// Lane sums of a row, lane 0 first, in double.
SPILLWAY_BODY double total(F16 lanes) { return sumLanes(widen(lanes)); }

template <bool kCentred>
static void normRow(const NormForward& call, size_t row) {
  const size_t width = call.width;
  const float* x = call.x + row * width;
  float* y = call.y + row * width;
  F16 mean = splat(0);
  if (kCentred) {
    F16 sum = splat(0);
    for (size_t c = 0; c < width; c += 16) sum = sum + loadPart(x + c, lanesFrom(c, width));
    call.mean[row] = float(total(sum) / double(width));
    mean = splat(call.mean[row]);
  }
  F16 squares = splat(0);
  for (size_t c = 0; c < width; c += 16) {
    const size_t lanes = lanesFrom(c, width);
    const F16 centred = loadPart(x + c, lanes) - mean;
    // Beyond the row's end lies zero minus the mean.
    const F16 value = kCentred ? select(firstLanes(lanes), centred, splat(0)) : centred;
    squares = fma(value, value, squares);
  }
  call.rstd[row] = float(1 / std::sqrt(total(squares) / double(width) + call.epsilon));
  const F16 rstd = splat(call.rstd[row]);
  for (size_t c = 0; c < width; c += 16) {
    const size_t lanes = lanesFrom(c, width);
    F16 value = (loadPart(x + c, lanes) - mean) * rstd;
    value = value * loadPart(call.weight + c, lanes);
    if (kCentred) value = value + loadPart(call.bias + c, lanes);
    storePart(y + c, value, lanes);
  }
}

template <bool kCentred>
static void normGradRow(const NormGrad& call, size_t row) {
  const size_t width = call.width;
  const float* x = call.x + row * width;
  const float* dy = call.dy + row * width;
  float* dx = call.out + row * width;
  const F16 mean = splat(kCentred ? call.mean[row] : 0);
  const F16 rstd = splat(call.rstd[row]);
  F16 sum = splat(0), slope = splat(0);
  for (size_t c = 0; c < width; c += 16) {
    const size_t lanes = lanesFrom(c, width);
    const F16 g = loadPart(dy + c, lanes) * loadPart(call.weight + c, lanes);
    const F16 normalised = (loadPart(x + c, lanes) - mean) * rstd;
    // g is zero beyond the row's end.
    if (kCentred) sum = sum + g;
    slope = fma(g, normalised, slope);
  }
  const F16 meanOfG = splat(kCentred ? float(total(sum) / double(width)) : 0);
  const F16 meanSlope = splat(float(total(slope) / double(width)));
  for (size_t c = 0; c < width; c += 16) {
    const size_t lanes = lanesFrom(c, width);
    const F16 g = loadPart(dy + c, lanes) * loadPart(call.weight + c, lanes);
    const F16 normalised = (loadPart(x + c, lanes) - mean) * rstd;
    storePart(dx + c, fnma(normalised, meanSlope, g - meanOfG) * rstd, lanes);
  }
}

// Σ over rows of dy·x̂, columns `column …` of one stripe: sums of kRowsPerSum rows, then those.
template <bool kCentred>
static void normGradStripe(const NormGrad& call, size_t column) {
  const size_t width = call.width;
  F16 sums[kStripeVectors];
  for (size_t v = 0; v < kStripeVectors; ++v) sums[v] = splat(0);
  for (size_t first = 0; first < call.rows; first += kRowsPerSum) {
    const size_t end = call.rows - first < kRowsPerSum ? call.rows : first + kRowsPerSum;
    F16 parts[kStripeVectors];
    for (size_t v = 0; v < kStripeVectors; ++v) parts[v] = splat(0);
    for (size_t row = first; row < end; ++row) {
      const F16 mean = splat(kCentred ? call.mean[row] : 0), rstd = splat(call.rstd[row]);
      for (size_t v = 0; v < kStripeVectors; ++v) {
        const size_t c = column + 16 * v;
        if (c >= width) break;
        const size_t lanes = lanesFrom(c, width);
        const F16 normalised = (loadPart(call.x + row * width + c, lanes) - mean) * rstd;
        parts[v] = fma(loadPart(call.dy + row * width + c, lanes), normalised, parts[v]);
      }
    }
    for (size_t v = 0; v < kStripeVectors; ++v) sums[v] = sums[v] + parts[v];
  }
  for (size_t v = 0; v < kStripeVectors; ++v) {
    const size_t c = column + 16 * v;
    if (c < width) storePart(call.out + c, sums[v], lanesFrom(c, width));
  }
}

static void normForward(const NormForward& call, ThreadPool& pool) {
  pool.parallelFor(call.rows, rowGrain(call.width), [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      if (call.mean != nullptr) {
        normRow<true>(call, row);
      } else {
        normRow<false>(call, row);
      }
    }
  });
}

static void normGradInput(const NormGrad& call, ThreadPool& pool) {
  pool.parallelFor(call.rows, rowGrain(call.width), [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      if (call.mean != nullptr) {
        normGradRow<true>(call, row);
      } else {
        normGradRow<false>(call, row);
      }
    }
  });
}

static void normGradScale(const NormGrad& call, ThreadPool& pool) {
  constexpr size_t kStripe = 16 * kStripeVectors;
  const size_t stripes = (call.width + kStripe - 1) / kStripe;
  pool.parallelFor(stripes, 1, [&](size_t begin, size_t end) {
    for (size_t stripe = begin; stripe < end; ++stripe) {
      if (call.mean != nullptr) {
        normGradStripe<true>(call, stripe * kStripe);
      } else {
        normGradStripe<false>(call, stripe * kStripe);
      }
    }
  });
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

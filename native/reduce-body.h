// Reductions of float32 over the middle of [outer, reduced, inner]. See reduce.cc.
#include "simd.h"
#include "simd-math.h"
#include "simd-access.h"

namespace spillway {
namespace SPILLWAY_SIMD {

// Rows of one partial sum; the order of a sum depends on it, so it is part of the result.
constexpr size_t kSumLeaf = 32768;
// Columns whose sums are kept in registers while rows pass by.
constexpr size_t kSumColumns = 64;
constexpr size_t kReduceGrain = 16384;

SPILLWAY_BODY size_t grainOf(size_t elementsPerItem) {
  return 1 + kReduceGrain / (elementsPerItem == 0 ? 1 : elementsPerItem);
}

// out[j] = x[0][j] + x[1][j] + …, rows ascending, for `columns` <= 64.
SPILLWAY_BODY void sumColumns(const float* x, size_t rows, size_t stride, size_t columns,
                              double* out) {
  if (columns == kSumColumns) {
    D16 s0 = splatD(0.0), s1 = s0, s2 = s0, s3 = s0;
    for (size_t r = 0; r < rows; ++r) {
      const float* row = x + r * stride;
      s0 = s0 + widen(load(row));
      s1 = s1 + widen(load(row + 16));
      s2 = s2 + widen(load(row + 32));
      s3 = s3 + widen(load(row + 48));
    }
    storeD(out, s0);
    storeD(out + 16, s1);
    storeD(out + 32, s2);
    storeD(out + 48, s3);
    return;
  }
  for (size_t c = 0; c < columns; c += 16) {
    const size_t n = columns - c < 16 ? columns - c : 16;
    D16 s = splatD(0.0);
    for (size_t r = 0; r < rows; ++r) s = s + widen(get(x + r * stride + c, n));
    double rest[16];
    storeD(rest, s);
    for (size_t i = 0; i < n; ++i) out[c + i] = rest[i];
  }
}

// Sums of leaf `leaf` for the outputs [begin, end) of one outer index.
SPILLWAY_BODY void sumLeaf(const float* x, size_t rows, size_t inner, size_t begin, size_t end,
                           double* out) {
  if (inner == 1) {
    *out = sumOf(x, rows);
    return;
  }
  for (size_t c = begin; c < end; c += kSumColumns) {
    const size_t n = end - c < kSumColumns ? end - c : kSumColumns;
    sumColumns(x + c, rows, inner, n, out + (c - begin));
  }
}

// args [x, out, outer, reduced, inner, divisor]. Each leaf of 32768 rows is summed in double (inner
// 1: sixteen lanes, then the lanes; else row by row), then the leaves ascending, then one division
// and one rounding to float32.
void sumFloat(KernelCall& call) {
  const float* x = call.ptr<float>(0);
  float* out = call.ptr<float>(1);
  const size_t outer = size_t(call.i(2)), reduced = size_t(call.i(3)), inner = size_t(call.i(4));
  const double divisor = call.d(5);
  const size_t leaves = reduced == 0 ? 1 : (reduced + kSumLeaf - 1) / kSumLeaf;
  const size_t columns = inner == 1 ? 1 : kSumColumns;
  const size_t blocks = (inner + columns - 1) / columns;
  double* sums = leaves == 1 ? nullptr
                             : reinterpret_cast<double*>(call.scratch(2 * outer * leaves * inner));
  const auto finish = [&](double sum) { return float(divisor == 1.0 ? sum : sum / divisor); };
  const size_t rowsPerLeaf = reduced < kSumLeaf ? reduced : kSumLeaf;
  call.pool.parallelFor(
      outer * leaves * blocks, grainOf(rowsPerLeaf * columns), [&](size_t begin, size_t end) {
        for (size_t item = begin; item < end; ++item) {
          const size_t block = item % blocks, leaf = item / blocks % leaves;
          const size_t o = item / blocks / leaves;
          const size_t c = block * columns, c1 = c + columns < inner ? c + columns : inner;
          const size_t first = leaf * kSumLeaf;
          const size_t rows = reduced - first < kSumLeaf ? reduced - first : kSumLeaf;
          double direct[kSumColumns];
          double* target = sums == nullptr ? direct : sums + (o * leaves + leaf) * inner + c;
          sumLeaf(x + (o * reduced + first) * inner, rows, inner, c, c1, target);
          if (sums != nullptr) continue;
          for (size_t j = c; j < c1; ++j) out[o * inner + j] = finish(direct[j - c]);
        }
      });
  if (sums == nullptr) return;
  call.pool.parallelFor(outer * inner, grainOf(leaves), [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const double* leaf = sums + i / inner * leaves * inner + i % inner;
      double sum = leaf[0];
      for (size_t k = 1; k < leaves; ++k) sum += leaf[k * inner];
      out[i] = finish(sum);
    }
  });
}

struct Largest {
  static constexpr float kEmpty = -__builtin_inff();
  static SPILLWAY_BODY F16 of(F16 x, F16 y) { return maxNan(x, y); }
};
struct Smallest {
  static constexpr float kEmpty = __builtin_inff();
  static SPILLWAY_BODY F16 of(F16 x, F16 y) { return minNan(x, y); }
};

template <class Pick>
SPILLWAY_BODY float extremeOf(const float* x, size_t count) {
  F16 best = splat(Pick::kEmpty);
  forLanes(0, count, [&](size_t i, size_t n) {
    best = select(firstLanes(n), Pick::of(best, get(x + i, n)), best);
  });
  float lanes[16];
  store(lanes, best);
  F16 one = splat(lanes[0]);
  for (int i = 1; i < 16; ++i) one = Pick::of(one, splat(lanes[i]));
  store(lanes, one);
  return lanes[0];
}

// The extremes of `columns` <= 64 columns over `rows` >= 1 rows.
template <class Pick>
SPILLWAY_BODY void extremeColumns(const float* x, size_t rows, size_t stride, size_t columns,
                                  float* out) {
  if (columns == kSumColumns) {
    F16 b0 = load(x), b1 = load(x + 16), b2 = load(x + 32), b3 = load(x + 48);
    for (size_t r = 1; r < rows; ++r) {
      const float* row = x + r * stride;
      b0 = Pick::of(b0, load(row));
      b1 = Pick::of(b1, load(row + 16));
      b2 = Pick::of(b2, load(row + 32));
      b3 = Pick::of(b3, load(row + 48));
    }
    store(out, b0);
    store(out + 16, b1);
    store(out + 32, b2);
    store(out + 48, b3);
    return;
  }
  forLanes(0, columns, [&](size_t c, size_t n) {
    F16 best = get(x + c, n);
    for (size_t r = 1; r < rows; ++r) best = Pick::of(best, get(x + r * stride + c, n));
    put(out + c, best, n);
  });
}

// args [x, out, outer, reduced, inner]; NaN where one is among the values or there are none.
template <class Pick>
void runExtreme(KernelCall& call) {
  const float* x = call.ptr<float>(0);
  float* out = call.ptr<float>(1);
  const size_t outer = size_t(call.i(2)), reduced = size_t(call.i(3)), inner = size_t(call.i(4));
  if (reduced == 0) {
    for (size_t i = 0; i < outer * inner; ++i) out[i] = __builtin_nanf("");
    return;
  }
  if (inner == 1) {
    call.pool.parallelFor(outer, grainOf(reduced), [&](size_t begin, size_t end) {
      for (size_t o = begin; o < end; ++o) out[o] = extremeOf<Pick>(x + o * reduced, reduced);
    });
    return;
  }
  const size_t blocks = (inner + kSumColumns - 1) / kSumColumns;
  const size_t grain = grainOf(kSumColumns * reduced);
  call.pool.parallelFor(outer * blocks, grain, [&](size_t begin, size_t end) {
    for (size_t item = begin; item < end; ++item) {
      const size_t o = item / blocks, c = item % blocks * kSumColumns;
      const size_t columns = inner - c < kSumColumns ? inner - c : kSumColumns;
      extremeColumns<Pick>(x + o * reduced * inner + c, reduced, inner, columns,
                           out + o * inner + c);
    }
  });
}
void maxFloat(KernelCall& call) { runExtreme<Largest>(call); }
void minFloat(KernelCall& call) { runExtreme<Smallest>(call); }

// args [x, out, rows, columns]; out = e^(x - m) * (1 / sum) over each row, m its largest value.
void softmaxFloat(KernelCall& call) {
  const float* x = call.ptr<float>(0);
  float* out = call.ptr<float>(1);
  const size_t columns = size_t(call.i(3));
  call.pool.parallelFor(size_t(call.i(2)), grainOf(4 * columns), [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      const float* from = x + r * columns;
      float* to = out + r * columns;
      const F16 largest = splat(maxOf(from, columns));
      D16 lanes = splatD(0.0);
      forLanes(0, columns, [&](size_t i, size_t n) {
        const F16 e = exp(get(from + i, n) - largest);
        put(to + i, e, n);
        lanes = lanes + widen(select(firstLanes(n), e, splat(0.0f)));
      });
      const F16 factor = splat(float(1.0 / sumLanes(lanes)));
      forLanes(0, columns, [&](size_t i, size_t n) { put(to + i, get(to + i, n) * factor, n); });
    }
  });
}

// args as softmaxFloat; out = (x - m) - log(sum of e^(x - m)).
void logSoftmaxFloat(KernelCall& call) {
  const float* x = call.ptr<float>(0);
  float* out = call.ptr<float>(1);
  const size_t columns = size_t(call.i(3));
  call.pool.parallelFor(size_t(call.i(2)), grainOf(4 * columns), [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      const float* from = x + r * columns;
      const F16 largest = splat(maxOf(from, columns));
      D16 lanes = splatD(0.0);
      forLanes(0, columns, [&](size_t i, size_t n) {
        const F16 e = exp(get(from + i, n) - largest);
        lanes = lanes + widen(select(firstLanes(n), e, splat(0.0f)));
      });
      const F16 logSum = log(splat(float(sumLanes(lanes))));
      forLanes(0, columns, [&](size_t i, size_t n) {
        put(out + r * columns + i, (get(from + i, n) - largest) - logSum, n);
      });
    }
  });
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

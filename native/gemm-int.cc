// Matrix products of int32, modulo 2^32: for tfjs programs that multiply indices or counts, hence
// plain loops.
#include <algorithm>

#include "kernel.h"

namespace spillway {
namespace {

struct IntOperand {
  const uint32_t* data;
  // Elements from one row of op(X) to the next, from one column to the next, per batch element.
  ptrdiff_t rowStep, columnStep, batchStride;
};

IntOperand intOperand(const KernelCall& call, size_t data, size_t at) {
  const bool transposed = call.i(at) != 0;
  const ptrdiff_t leading = call.i(at + 1);
  return {call.ptr<uint32_t>(data), transposed ? 1 : leading, transposed ? leading : 1,
          static_cast<ptrdiff_t>(call.i(at + 2))};
}

constexpr size_t kGrainProducts = size_t{1} << 16;

}  // namespace

// Arguments: a, b, c (byte offsets), m, n, k, batch, then for a and for b: transposed, leading
// dimension, batch stride. C is contiguous.
SPILLWAY_KERNEL(gemmInt) {
  const auto m = static_cast<size_t>(call.i(3)), n = static_cast<size_t>(call.i(4));
  const auto k = static_cast<size_t>(call.i(5)), batch = static_cast<size_t>(call.i(6));
  const IntOperand a = intOperand(call, 0, 7), b = intOperand(call, 1, 10);
  auto* c = call.ptr<uint32_t>(2);
  const size_t grain = kGrainProducts / std::max<size_t>(1, n * k) + 1;
  call.pool.parallelFor(batch * m, grain, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const auto element = static_cast<ptrdiff_t>(row / m), i = static_cast<ptrdiff_t>(row % m);
      const uint32_t* aRow = a.data + element * a.batchStride + i * a.rowStep;
      const uint32_t* bMatrix = b.data + element * b.batchStride;
      uint32_t* cRow = c + row * n;
      std::fill(cRow, cRow + n, 0u);
      for (size_t step = 0; step < k; ++step) {
        const uint32_t factor = aRow[static_cast<ptrdiff_t>(step) * a.columnStep];
        const uint32_t* bRow = bMatrix + static_cast<ptrdiff_t>(step) * b.rowStep;
        for (size_t j = 0; j < n; ++j) {
          cRow[j] += factor * bRow[static_cast<ptrdiff_t>(j) * b.columnStep];
        }
      }
    }
  });
}

}  // namespace spillway

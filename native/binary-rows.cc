#include "binary-rows.h"

namespace spillway {
namespace {

constexpr size_t kMostDims = 6;
// Elements per piece below which another thread does not pay.
constexpr size_t kGrain = 16384;

struct Layout {
  size_t rank;
  size_t dims[kMostDims];
  size_t aStrides[kMostDims];
  size_t bStrides[kMostDims];
};

Layout readLayout(const KernelCall& call) {
  Layout layout;
  const size_t rank = layout.rank = static_cast<size_t>(call.i(3));
  for (size_t k = 0; k < rank; ++k) {
    layout.dims[k] = static_cast<size_t>(call.i(4 + k));
    layout.aStrides[k] = static_cast<size_t>(call.i(4 + rank + k));
    layout.bStrides[k] = static_cast<size_t>(call.i(4 + 2 * rank + k));
  }
  return layout;
}

// row(aOffset, bOffset, outOffset, count) for each stretch of the last dimension that covers the
// elements [begin, end) of the output.
template <class Row>
void forRows(const Layout& layout, size_t begin, size_t end, Row row) {
  const size_t last = layout.rank - 1;
  size_t at[kMostDims];
  size_t a = 0, b = 0, rest = begin;
  for (size_t k = layout.rank; k-- > 0;) {
    at[k] = rest % layout.dims[k];
    rest /= layout.dims[k];
    a += at[k] * layout.aStrides[k];
    b += at[k] * layout.bStrides[k];
  }
  size_t i = begin;
  while (i < end) {
    const size_t left = layout.dims[last] - at[last];
    const size_t count = left < end - i ? left : end - i;
    row(a, b, i, count);
    i += count;
    // The start of the next row: the last dimension begins anew, an outer one goes up.
    a -= at[last] * layout.aStrides[last];
    b -= at[last] * layout.bStrides[last];
    at[last] = 0;
    for (size_t k = last; k-- > 0;) {
      a += layout.aStrides[k];
      b += layout.bStrides[k];
      if (++at[k] < layout.dims[k]) break;
      a -= layout.dims[k] * layout.aStrides[k];
      b -= layout.dims[k] * layout.bStrides[k];
      at[k] = 0;
    }
  }
}

}  // namespace

void runRows(KernelCall& call, size_t inBytes, size_t outBytes, const BinaryRowsOf& rows) {
  const Layout layout = readLayout(call);
  const size_t last = layout.rank - 1;
  const BinaryRow row = layout.aStrides[last] == 0   ? rows.bMoves
                        : layout.bStrides[last] == 0 ? rows.aMoves
                                                     : rows.both;
  const char* a = call.ptr<char>(0);
  const char* b = call.ptr<char>(1);
  char* out = call.ptr<char>(2);
  size_t count = 1;
  for (size_t k = 0; k < layout.rank; ++k) count *= layout.dims[k];
  call.pool.parallelFor(count, kGrain, [&](size_t begin, size_t end) {
    forRows(layout, begin, end, [&](size_t ai, size_t bi, size_t oi, size_t n) {
      row(a + ai * inBytes, b + bi * inBytes, out + oi * outBytes, n);
    });
  });
}

}  // namespace spillway

// Data movement: copies between strided layouts, whatever the tensors mean.
//
// One kernel serves Slice, Concat, Split, Pad, Tile, Transpose and Reverse: a box of elements is
// read by one set of strides and written by another. Elements are moved as 1 or 4 bytes.
//
// copyStrided args [source, target, element bytes, rank, dims × rank, source strides × rank, target
// strides × rank]: rank 1 to 6, strides in elements, any sign. TypeScript merges dimensions and puts
// them in the order of the target's strides, so the last one is the target's closest.
#include <cstring>

#include "kernel.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace spillway {
namespace {

constexpr size_t kMostDims = 6;
constexpr size_t kGrainElements = 16384;

struct Box {
  size_t rank;
  size_t dims[kMostDims];
  ptrdiff_t from[kMostDims];
  ptrdiff_t to[kMostDims];
};

Box readBox(const KernelCall& call) {
  Box box;
  const size_t rank = box.rank = static_cast<size_t>(call.i(3));
  for (size_t k = 0; k < rank; ++k) {
    box.dims[k] = static_cast<size_t>(call.i(4 + k));
    box.from[k] = static_cast<ptrdiff_t>(call.i(4 + rank + k));
    box.to[k] = static_cast<ptrdiff_t>(call.i(4 + 2 * rank + k));
  }
  return box;
}

// body(fromOffset, toOffset) for the positions [begin, end) of the first `rank` dimensions.
template <class Body>
void forPositions(const Box& box, size_t rank, size_t begin, size_t end, Body body) {
  size_t at[kMostDims];
  ptrdiff_t from = 0, to = 0;
  size_t rest = begin;
  for (size_t k = rank; k-- > 0;) {
    at[k] = rest % box.dims[k];
    rest /= box.dims[k];
    from += static_cast<ptrdiff_t>(at[k]) * box.from[k];
    to += static_cast<ptrdiff_t>(at[k]) * box.to[k];
  }
  for (size_t i = begin; i < end; ++i) {
    body(from, to);
    for (size_t k = rank; k-- > 0;) {
      from += box.from[k];
      to += box.to[k];
      if (++at[k] < box.dims[k]) break;
      from -= static_cast<ptrdiff_t>(box.dims[k]) * box.from[k];
      to -= static_cast<ptrdiff_t>(box.dims[k]) * box.to[k];
      at[k] = 0;
    }
  }
}

template <class T>
void copyRow(const T* source, ptrdiff_t from, T* target, ptrdiff_t to, size_t count) {
  if (from == 1 && to == 1) {
    std::memcpy(target, source, count * sizeof(T));
  } else if (from == 0 && to == 1) {
    const T value = *source;
    for (size_t i = 0; i < count; ++i) target[i] = value;
  } else {
    const auto n = static_cast<ptrdiff_t>(count);
    for (ptrdiff_t i = 0; i < n; ++i) target[i * to] = source[i * from];
  }
}

template <class T>
void copyRows(KernelCall& call, const Box& box) {
  const T* source = call.ptr<T>(0);
  T* target = call.ptr<T>(1);
  const size_t last = box.rank - 1;
  size_t rows = 1;
  for (size_t k = 0; k < last; ++k) rows *= box.dims[k];
  const size_t count = box.dims[last];
  if (rows == 1) {
    call.pool.parallelFor(count, 4 * kGrainElements, [&](size_t begin, size_t end) {
      copyRow(source + static_cast<ptrdiff_t>(begin) * box.from[last], box.from[last],
              target + static_cast<ptrdiff_t>(begin) * box.to[last], box.to[last], end - begin);
    });
    return;
  }
  call.pool.parallelFor(rows, 1 + kGrainElements / count, [&](size_t begin, size_t end) {
    forPositions(box, last, begin, end, [&](ptrdiff_t from, ptrdiff_t to) {
      copyRow(source + from, box.from[last], target + to, box.to[last], count);
    });
  });
}

// Tiles of 16 rows by 16 columns of a transposition: both sides move whole cache lines.
constexpr size_t kTile = 16;

template <class T>
void transposeTile(const T* source, ptrdiff_t from, T* target, ptrdiff_t to, size_t rows,
                   size_t columns) {
#if defined(__SSE2__)
  if constexpr (sizeof(T) == 4) {
    if (rows == kTile && columns == kTile) {
      for (size_t r = 0; r < kTile; r += 4) {
        for (size_t c = 0; c < kTile; c += 4) {
          const float* in = reinterpret_cast<const float*>(source + static_cast<ptrdiff_t>(c) * from + r);
          float* out = reinterpret_cast<float*>(target + static_cast<ptrdiff_t>(r) * to + c);
          __m128 a = _mm_loadu_ps(in), b = _mm_loadu_ps(in + from);
          __m128 d = _mm_loadu_ps(in + 2 * from), e = _mm_loadu_ps(in + 3 * from);
          _MM_TRANSPOSE4_PS(a, b, d, e);
          _mm_storeu_ps(out, a);
          _mm_storeu_ps(out + to, b);
          _mm_storeu_ps(out + 2 * to, d);
          _mm_storeu_ps(out + 3 * to, e);
        }
      }
      return;
    }
  }
#endif
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      target[static_cast<ptrdiff_t>(r) * to + static_cast<ptrdiff_t>(c)] =
          source[static_cast<ptrdiff_t>(c) * from + static_cast<ptrdiff_t>(r)];
    }
  }
}

// The source's closest dimension `near` is not the target's, which is the last.
template <class T>
void transpose(KernelCall& call, const Box& whole, size_t near) {
  const T* source = call.ptr<T>(0);
  T* target = call.ptr<T>(1);
  // Positions of the dimensions other than the two, then of blocks of rows.
  Box box = whole;
  const size_t last = whole.rank - 1;
  const size_t rows = whole.dims[near], columns = whole.dims[last];
  const ptrdiff_t to = whole.to[near], from = whole.from[last];
  box.rank = 0;
  for (size_t k = 0; k < last; ++k) {
    if (k == near) continue;
    box.dims[box.rank] = whole.dims[k];
    box.from[box.rank] = whole.from[k];
    box.to[box.rank++] = whole.to[k];
  }
  box.dims[box.rank] = (rows + kTile - 1) / kTile;
  box.from[box.rank] = kTile;
  box.to[box.rank++] = static_cast<ptrdiff_t>(kTile) * to;
  size_t positions = 1;
  for (size_t k = 0; k < box.rank; ++k) positions *= box.dims[k];
  const size_t bands = box.dims[box.rank - 1];
  const size_t grain = 1 + kGrainElements / (kTile * columns);
  call.pool.parallelFor(positions, grain, [&](size_t begin, size_t end) {
    size_t position = begin;
    forPositions(box, box.rank, begin, end, [&](ptrdiff_t fromOffset, ptrdiff_t toOffset) {
      const size_t first = position++ % bands * kTile;
      const size_t height = rows - first < kTile ? rows - first : kTile;
      for (size_t c = 0; c < columns; c += kTile) {
        const size_t width = columns - c < kTile ? columns - c : kTile;
        transposeTile(source + fromOffset + static_cast<ptrdiff_t>(c) * from, from,
                      target + toOffset + static_cast<ptrdiff_t>(c), to, height, width);
      }
    });
  });
}

template <class T>
void copyBox(KernelCall& call) {
  const Box box = readBox(call);
  const size_t last = box.rank - 1;
  if (box.to[last] == 1 && box.from[last] != 1 && box.from[last] != 0) {
    for (size_t k = 0; k < last; ++k) {
      if (box.from[k] == 1) return transpose<T>(call, box, k);
    }
  }
  copyRows<T>(call, box);
}

}  // namespace

SPILLWAY_KERNEL(copyStrided) {
  if (call.i(2) == 1) {
    copyBox<uint8_t>(call);
  } else {
    copyBox<uint32_t>(call);
  }
}

}  // namespace spillway

// Data movement: copies between strided layouts, whatever the tensors mean.
//
// One kernel serves Slice, Concat, Split, Pad, Tile, Transpose and Reverse: a box of elements is
// read by one set of strides and written by another. Elements are moved as 1 or 4 bytes.
//
// copyStrided args [source, target, element bytes, rank, dims × rank, source strides × rank, target
// strides × rank]: rank 1 to 6, strides in elements, any sign. TypeScript merges dimensions and puts
// them in the order of the target's strides, so the last one is the target's closest.
#include <cstring>

#include "isa.h"
#include "kernel.h"

#if SPILLWAY_X86
#include <immintrin.h>
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

// Tiles of 16 rows by 16 columns of a transposition, so that both sides move whole cache lines, in
// bands of two tiles, which measured best.
constexpr size_t kTile = 16;
constexpr size_t kBand = 32;

#if SPILLWAY_X86
// 8 by 8 words: pairs, then fours, then halves change places.
SPILLWAY_BODY __attribute__((target("avx2"))) void transposeEight(const float* in, ptrdiff_t from,
                                                                  float* out, ptrdiff_t to) {
  __m256 rows[8], pairs[8], fours[8];
  for (int k = 0; k < 8; ++k) rows[k] = _mm256_loadu_ps(in + k * from);
  for (int k = 0; k < 8; k += 2) {
    pairs[k] = _mm256_unpacklo_ps(rows[k], rows[k + 1]);
    pairs[k + 1] = _mm256_unpackhi_ps(rows[k], rows[k + 1]);
  }
  for (int k = 0; k < 8; k += 4) {
    for (int j = 0; j < 2; ++j) {
      fours[k + 2 * j] = _mm256_shuffle_ps(pairs[k + j], pairs[k + j + 2], 0x44);
      fours[k + 2 * j + 1] = _mm256_shuffle_ps(pairs[k + j], pairs[k + j + 2], 0xEE);
    }
  }
  for (int k = 0; k < 4; ++k) {
    _mm256_storeu_ps(out + k * to, _mm256_permute2f128_ps(fours[k], fours[k + 4], 0x20));
    _mm256_storeu_ps(out + (k + 4) * to, _mm256_permute2f128_ps(fours[k], fours[k + 4], 0x31));
  }
}

SPILLWAY_AVX2 void transposeSixteen(const float* in, ptrdiff_t from, float* out, ptrdiff_t to) {
  transposeEight(in, from, out, to);
  transposeEight(in + 8 * from, from, out + 8, to);
  transposeEight(in + 8, from, out + 8 * to, to);
  transposeEight(in + 8 * from + 8, from, out + 8 * to + 8, to);
}
#endif

template <class T>
void transposeTile(const T* source, ptrdiff_t from, T* target, ptrdiff_t to, size_t rows,
                   size_t columns, [[maybe_unused]] bool wide) {
#if SPILLWAY_X86
  if constexpr (sizeof(T) == sizeof(float)) {
    if (wide && rows == kTile && columns == kTile) {
      transposeSixteen(reinterpret_cast<const float*>(source), from,
                       reinterpret_cast<float*>(target), to);
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
  // Positions of the dimensions other than the two, then of bands of rows.
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
  box.dims[box.rank] = (rows + kBand - 1) / kBand;
  box.from[box.rank] = kBand;
  box.to[box.rank++] = static_cast<ptrdiff_t>(kBand) * to;
  size_t positions = 1;
  for (size_t k = 0; k < box.rank; ++k) positions *= box.dims[k];
  const size_t bands = box.dims[box.rank - 1];
  const size_t grain = 1 + kGrainElements / (kBand * columns);
  const bool wide = currentIsa() >= Isa::avx2;
  call.pool.parallelFor(positions, grain, [&](size_t begin, size_t end) {
    size_t position = begin;
    forPositions(box, box.rank, begin, end, [&](ptrdiff_t fromOffset, ptrdiff_t toOffset) {
      const size_t first = position++ % bands * kBand;
      const size_t height = rows - first < kBand ? rows - first : kBand;
      for (size_t c = 0; c < columns; c += kTile) {
        const size_t width = columns - c < kTile ? columns - c : kTile;
        const T* in = source + fromOffset + static_cast<ptrdiff_t>(c) * from;
        T* out = target + toOffset + static_cast<ptrdiff_t>(c);
        for (size_t r = 0; r < height; r += kTile) {
          transposeTile(in + r, from, out + static_cast<ptrdiff_t>(r) * to, to,
                        height - r < kTile ? height - r : kTile, width, wide);
        }
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

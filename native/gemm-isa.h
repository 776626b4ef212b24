// What the driver of the matrix product (gemm.cc) calls per instruction set: tile kernels and
// packers, made by gemm-body.h.
//
// The driver sees a product as rows × lanes: `rows` are broadcast one element at a time, `lanes`
// fill vectors of 16. A panel is a run of lanes or rows laid out k by k: element (i, k) at
// panel[k * width + i], width a multiple of 16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway {

constexpr size_t kLanes = 16;
// Vector counts of a tile are 1, 2, 4 and 8: indices 0 to 3.
constexpr size_t kTileWidths = 4;
// Most rows of a row-major tile, on any instruction set.
constexpr size_t kGemmMostDirectRows = 8;

// `count` pairs of cache lines, `step` bytes from one pair to the next.
struct GemmAhead {
  const char* data;
  ptrdiff_t step;
  size_t count;
};

// One tile: c[r][16·v …] = the fma chain over k of row element times lane vector.
struct GemmTile {
  size_t k;
  // Row r at step k: rows[k * rowStep + r] by a k-major kernel, rows[r * rowStep + k] by a
  // row-major one.
  const float* rows;
  ptrdiff_t rowStep;
  // Vector v at step k: lanes[k * laneStep + 16 * v].
  const float* lanes;
  ptrdiff_t laneStep;
  float* c;
  ptrdiff_t cStep;
  // Whether the chain starts at +0 rather than at c.
  bool first;
  // Where a copying kernel leaves the lane vectors that it reads, as a panel.
  float* copy;
  // What later tiles will want, fetched on the side.
  GemmAhead lanesAhead, cAhead;
};

using GemmTileFn = void (*)(const GemmTile&);

// Tiles of one number of rows; null where the accumulators would not fit the registers.
struct GemmTiles {
  GemmTileFn kMajor[kTileWidths];
  GemmTileFn kMajorCopying[kTileWidths];
  GemmTileFn rowMajor[kTileWidths];
  GemmTileFn rowMajorCopying[kTileWidths];
};

// Adds the bias and applies the activation to a finished tile. Bias runs along lanes or along rows.
struct GemmFinish {
  float* c;
  ptrdiff_t cStep;
  size_t rows, lanes;
  const float* laneBias;
  const float* rowBias;
  bool relu;
};

// Packs `count` rows or lanes of `k` steps into a panel of `width`; what is beyond `count` holds
// finite or infinite rubbish of the operand or zeros, and only reaches elements that are dropped.
// `alongK`: element (i, k) at source[i * leading + k], else at source[k * leading + i].
using GemmPackFn = void (*)(float* panel, size_t width, const void* source, ptrdiff_t leading,
                            bool alongK, size_t count, size_t k);

struct GemmIsa {
  // tiles[r - 1] has r rows.
  const GemmTiles* tiles;
  // Most rows of a tile of packed rows, and of one that reads rows where they lie.
  size_t packedRows, directRows;
  // Width index of a packed panel of lanes.
  size_t panelWidth;
  GemmPackFn packFloat32;
  GemmPackFn packBfloat16;
  // Decodes `count` rows of `k` bf16 into rows of `k` floats.
  void (*decodeRows)(float* target, const void* source, ptrdiff_t leading, size_t count, size_t k);
  void (*finish)(const GemmFinish&);
};

// Of the instruction set in use.
const GemmIsa& gemmIsa();

}  // namespace spillway

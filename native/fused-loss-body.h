// Body file of fused-loss.cc, once per instruction set.
#include "simd.h"
#include "fused-exp.h"

namespace spillway {
namespace SPILLWAY_SIMD {

static void lossTileRow(const LossTile& tile, size_t row) {
  const float* logits = tile.logits + row * tile.width;
  const size_t width = tile.width;
  F16 most = splat(tile.largest[row]);
  for (size_t c = 0; c < width; c += 16) {
    const size_t lanes = width - c < 16 ? width - c : 16;
    most = max(most, select(firstLanes(lanes), loadPart(logits + c, lanes), most));
  }
  alignas(64) float candidates[16];
  store(candidates, most);
  float largest = candidates[0];
  for (size_t lane = 1; lane < 16; ++lane) {
    if (candidates[lane] > largest) largest = candidates[lane];
  }
  const F16 shift = splat(largest);
  F16 sum = splat(0);
  for (size_t c = 0; c < width; c += 16) {
    const size_t lanes = width - c < 16 ? width - c : 16;
    const F16 weight = expFast(loadPart(logits + c, lanes) - shift);
    sum = sum + select(firstLanes(lanes), weight, splat(0));
  }
  alignas(64) float kept[16];
  store(kept, expFast(splat(tile.largest[row]) - shift));
  tile.newLargest[row] = largest;
  tile.newTotal[row] = float(double(tile.total[row]) * double(kept[0]) + sumLanes(widen(sum)));
  const int64_t column = tile.columnOf(row);
  const bool here = column >= 0 && column < int64_t(width);
  tile.newTarget[row] = tile.target[row] + (here ? logits[column] : 0);
}

static void lossTileGradRow(const LossTileGrad& tile, size_t row) {
  float* logits = tile.logits + row * tile.width;
  const size_t width = tile.width;
  const bool counts = tile.labels.of(row) >= 0;
  const F16 scale = splat(counts ? tile.scale : 0), lse = splat(tile.lse[row]);
  for (size_t c = 0; c < width; c += 16) {
    const size_t lanes = width - c < 16 ? width - c : 16;
    const F16 weight = expFast(loadPart(logits + c, lanes) - lse);
    storePart(logits + c, weight * scale, lanes);
  }
  const int64_t column = tile.labels.of(row) - tile.firstRow;
  // Σ over the vocabulary stays exact to a rounding: p·scale - scale where the target is.
  if (counts && column >= 0 && column < int64_t(width)) logits[column] -= tile.scale;
}

static void lossTile(const LossTile& tile, ThreadPool& pool) {
  pool.parallelFor(tile.rows, 1 + kGrain / tile.width, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) lossTileRow(tile, row);
  });
}

static void lossTileGrad(const LossTileGrad& tile, ThreadPool& pool) {
  pool.parallelFor(tile.rows, 1 + kGrain / tile.width, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) lossTileGradRow(tile, row);
  });
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

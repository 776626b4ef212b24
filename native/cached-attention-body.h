// Body file of cached-attention.cc, once per instruction set: one tile of queries of one head.
#include "simd.h"
#include "simd-math.h"
#include "tile-product.h"
#include "fused-exp.h"
#include "fused-attention-tiles.h"

namespace spillway {
namespace SPILLWAY_SIMD {

// Rows `first … first + count` of a key-value head, in the cache, in the new tensor, or, where they
// lie in both, copied together into `joined` [count][width].
static HeadRows cachedRows(const CachedAttention& call, const CachedRows& rows, size_t keyHead,
                           size_t first, size_t count, float* joined) {
  const size_t column = keyHead * call.width;
  const float* added = rows.added + column;
  const float* cached = rows.cached + column;
  if (first >= call.first) {
    return {added + (first - call.first) * rows.addedToken, rows.addedToken};
  }
  if (first + count <= call.first) return {cached + first * rows.cachedToken, rows.cachedToken};
  for (size_t row = 0; row < count; ++row) {
    const size_t position = first + row;
    const float* source = position < call.first
                              ? cached + position * rows.cachedToken
                              : added + (position - call.first) * rows.addedToken;
    std::memcpy(joined + row * call.width, source, call.width * sizeof(float));
  }
  return {joined, call.width};
}

// Turns the scores of one query and `seen` keys into weights, zeros up to kTile; returns the factor
// of what was summed before.
static float softmaxRow(float* scores, size_t seen, float& largest, float& total) {
  for (size_t key = seen; key < kTile; ++key) scores[key] = kMasked;
  F16 most = splat(largest);
  for (size_t key = 0; key < kTile; key += 16) most = max(most, load(scores + key));
  alignas(64) float lanes[16];
  store(lanes, most);
  float raised = lanes[0];
  for (size_t lane = 1; lane < 16; ++lane) raised = lanes[lane] > raised ? lanes[lane] : raised;
  store(lanes, expFast(splat(largest) - splat(raised)));
  const float factor = lanes[0];
  for (size_t key = 0; key < kTile; key += 16) {
    store(scores + key, expFast(load(scores + key) - splat(raised)));
  }
  for (size_t key = seen; key < kTile; ++key) scores[key] = 0;
  float sum = total * factor;
  for (size_t key = 0; key < seen; ++key) sum = sum + scores[key];
  largest = raised;
  total = sum;
  return factor;
}

static void attendCachedTile(const CachedAttention& call, size_t task, float* scratch) {
  const size_t tile = task % call.tiles, head = task / call.tiles;
  const size_t keyHead = head / (call.heads / call.keyHeads);
  const size_t width = call.width, padded = call.padded;
  const size_t start = tile * kTile;
  const size_t queries = call.queries - start < kTile ? call.queries - start : kTile;
  const size_t position = call.first + start;  // of the tile's first query

  float* scaled = scratch;
  float* columns = scaled + kTile * width;
  float* joined = columns + kTile * width;
  float* scores = joined + kTile * width;
  float* values = scores + kTile * kTile;
  float* sums = values + kTile * padded;
  alignas(64) float factors[kTile], largest[kTile], totals[kTile];
  for (size_t query = 0; query < queries; ++query) {
    const float* source = call.q + (start + query) * call.qToken + head * width;
    for (size_t d = 0; d < width; ++d) scaled[query * width + d] = call.scale * source[d];
    largest[query] = kMasked;
    totals[query] = 0;
  }
  for (size_t key = 0; key < position + queries; key += kTile) {
    const size_t rest = position + queries - key, keys = rest < kTile ? rest : kTile;
    packColumns(cachedRows(call, call.k, keyHead, key, keys, joined), keys, width, 1, columns);
    tileProduct(queries, kTileLanes, width, scaled, width, 1, columns, kTile, scores, kTile, true);
    bool rose = false;
    for (size_t query = 0; query < queries; ++query) {
      const size_t last = position + query;  // the last key that it sees
      const size_t seen = last < key ? 0 : (last - key + 1 < keys ? last - key + 1 : keys);
      factors[query] = softmaxRow(scores + query * kTile, seen, largest[query], totals[query]);
      rose |= factors[query] != 1;
    }
    packRows(cachedRows(call, call.v, keyHead, key, keys, joined), keys, width, padded, values);
    if (rose && key > 0) scaleRows(sums, factors, queries, padded);
    tileProduct(queries, padded / 16, keys, scores, kTile, 1, values, padded, sums, padded,
                key == 0);
  }
  for (size_t query = 0; query < queries; ++query) factors[query] = 1 / totals[query];
  scaleRows(sums, factors, queries, padded);
  const size_t outToken = call.heads * width;
  storeRows(sums, queries, width, padded, 1, call.out + start * outToken + head * width, outToken);
}

static void attendCached(const CachedAttention& call, ThreadPool& pool, float* scratch) {
  const size_t perWorker = call.workerFloats();
  pool.parallelFor(call.heads * call.tiles, 1, [&](size_t begin, size_t end, int worker) {
    for (size_t task = begin; task < end; ++task) {
      attendCachedTile(call, task, scratch + worker * perWorker);
    }
  });
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

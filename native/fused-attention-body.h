// Body file of fused-attention.cc, once per instruction set: tasks of the forward and backward
// pass.
#include "simd.h"
#include "simd-math.h"
#include "tile-product.h"
#include "fused-exp.h"
#include "fused-attention-tiles.h"

namespace spillway {
namespace SPILLWAY_SIMD {

// One tile of queries of one head: out and lse.
static void attendTile(const AttentionForward& call, size_t task, float* scratch) {
  const AttentionShape& shape = call.shape;
  const size_t tile = task % shape.tiles;
  const size_t head = task / shape.tiles % shape.heads;
  const size_t sequence = task / shape.tiles / shape.heads;
  const size_t keyHead = head / (shape.heads / shape.keyHeads);
  const size_t first = tile * kTile, queries = shape.rowsOf(tile);
  const int32_t* documents = shape.documentsOf(sequence);
  const size_t width = shape.width, padded = shape.padded;

  float* columns = scratch;
  float* scores = columns + kTile * width;
  float* values = scores + kTile * kTile;
  float* sums = values + kTile * padded;
  alignas(64) float factors[kTile];
  Statistics state;
  for (size_t lane = 0; lane < kTileLanes; ++lane) {
    state.largest[lane] = splat(kMasked);
    state.total[lane] = splat(0);
  }
  packColumns(rowsAt(call.q, call.qStrides, sequence, head, first), queries, width, shape.scale,
              columns);
  bool fresh = true;
  for (size_t keyTile = 0; keyTile <= tile; ++keyTile) {
    const Sight sight = sightOf(shape, documents, keyTile, tile);
    if (sight.blind) continue;
    const size_t keys = shape.rowsOf(keyTile);
    const HeadRows k = rowsAt(call.k, call.kStrides, sequence, keyHead, keyTile * kTile);
    scoreTile(sight.diagonal, Rows::keys, keys, width, k.data, k.token, columns, scores);
    const bool rose = softmaxTile(sight, keys, queries, scores, state, factors);
    packRows(rowsAt(call.v, call.vStrides, sequence, keyHead, keyTile * kTile), keys, width, padded,
             values);
    if (rose && !fresh) scaleRows(sums, factors, queries, padded);
    sumTile(sight.diagonal, Rows::queries, queries, keys, scores, values, sums, padded, fresh);
    fresh = false;
  }
  alignas(64) float lse[kTile];
  for (size_t lane = 0; lane < kTileLanes; ++lane) {
    store(factors + 16 * lane, splat(1) / state.total[lane]);
    store(lse + 16 * lane, state.largest[lane] + log(state.total[lane]));
  }
  scaleRows(sums, factors, queries, padded);
  storeRows(sums, queries, width, padded, 1,
            at(call.out, call.outStrides, sequence, head, first), call.outStrides.token);
  float* target = call.lse + (sequence * shape.heads + head) * shape.length + first;
  for (size_t query = 0; query < queries; ++query) target[query] = lse[query];
}

// Whether query `token` sees no key but its own.
static bool seesItselfOnly(const int32_t* documents, size_t token) {
  if (documents == nullptr || token == 0) return token == 0;
  const int32_t document = documents[token];
  // The usual case, of documents packed one after the other.
  if (documents[token - 1] == document) return false;
  for (size_t key = 0; key + 1 < token; ++key) {
    if (documents[key] == document) return false;
  }
  return true;
}

// dOut·out of one query: 16 lanes, then those ascending.
SPILLWAY_BODY float deltaOf(const float* dOut, const float* out, size_t width) {
  F16 sum = splat(0);
  for (size_t d = 0; d < width; d += 16) {
    const size_t rest = width - d < 16 ? width - d : 16;
    sum = fma(loadPart(out + d, rest), loadPart(dOut + d, rest), sum);
  }
  return float(sumLanes(widen(sum)));
}

// The same as the chain of dOut·Vᵀ. Where one key is in sight, out is its value in every bit, so
// that the two cancel and the gradient of the score is exactly zero.
SPILLWAY_BODY float deltaOfOneKey(const float* dOut, const float* out, size_t width) {
  F16 sum = splat(0);
  for (size_t d = 0; d < width; ++d) sum = fma(splat(dOut[d]), splat(out[d]), sum);
  alignas(64) float lanes[16];
  store(lanes, sum);
  return lanes[0];
}

// delta = rowsum(dOut·out) of one tile of queries of one head.
static void deltaTile(const AttentionBackward& call, size_t task) {
  const AttentionShape& shape = call.shape;
  const size_t tile = task % shape.tiles, plane = task / shape.tiles;
  const size_t head = plane % shape.heads, sequence = plane / shape.heads;
  const size_t first = tile * kTile;
  const int32_t* documents = shape.documentsOf(sequence);
  const HeadRows out = rowsAt(call.out, call.outStrides, sequence, head, first);
  const HeadRows dOut = rowsAt(call.dOut, call.outStrides, sequence, head, first);
  float* delta = call.delta + plane * shape.length + first;
  for (size_t row = 0; row < shape.rowsOf(tile); ++row) {
    const float* a = dOut.data + row * dOut.token;
    const float* b = out.data + row * out.token;
    delta[row] = seesItselfOnly(documents, first + row) ? deltaOfOneKey(a, b, shape.width)
                                                        : deltaOf(a, b, shape.width);
  }
}

// One tile of keys of one key-value head: dk and dv, over all query heads and tiles that see it.
// With `queriesToo` it adds to dq as well, which then must be zero before the first tile of keys,
// and tiles of keys must come ascending.
template <bool queriesToo>
static void keyGradientTile(const AttentionBackward& call, size_t tile, size_t plane,
                            float* scratch) {
  const AttentionShape& shape = call.shape;
  const size_t keyHead = plane % shape.keyHeads, sequence = plane / shape.keyHeads;
  const size_t group = shape.heads / shape.keyHeads;
  const size_t keys = shape.rowsOf(tile), width = shape.width, padded = shape.padded;
  const int32_t* documents = shape.documentsOf(sequence);

  float* keyColumns = scratch;
  float* valueColumns = keyColumns + kTile * width;
  float* weights = valueColumns + kTile * width;
  float* slopes = weights + kTile * kTile;
  float* queryRows = slopes + kTile * kTile;
  float* dOutRows = queryRows + kTile * padded;
  float* dk = dOutRows + kTile * padded;
  float* dv = dk + kTile * padded;
  float* keyRows = dv + kTile * padded;
  float* dqRows = keyRows + kTile * padded;
  const HeadRows k = rowsAt(call.k, call.kStrides, sequence, keyHead, tile * kTile);
  packColumns(k, keys, width, 1, keyColumns);
  packColumns(rowsAt(call.v, call.vStrides, sequence, keyHead, tile * kTile), keys, width, 1,
              valueColumns);
  if (queriesToo) packRows(k, keys, width, padded, keyRows);
  bool fresh = true;
  for (size_t head = keyHead * group; head < (keyHead + 1) * group; ++head) {
    const size_t statistics = (sequence * shape.heads + head) * shape.length;
    for (size_t queryTile = tile; queryTile < shape.tiles; ++queryTile) {
      const Sight sight = sightOf(shape, documents, tile, queryTile);
      if (sight.blind) continue;
      const size_t first = queryTile * kTile, queries = shape.rowsOf(queryTile);
      packRows(rowsAt(call.q, call.qStrides, sequence, head, first), queries, width, padded,
               queryRows);
      packRows(rowsAt(call.dOut, call.outStrides, sequence, head, first), queries, width, padded,
               dOutRows);
      scoreTile(sight.diagonal, Rows::queries, queries, width, queryRows, padded, keyColumns,
                weights);
      scoreTile(sight.diagonal, Rows::queries, queries, width, dOutRows, padded, valueColumns,
                slopes);
      slopeTile(sight, queries, keys, shape.scale, call.lse + statistics + first,
                call.delta + statistics + first, weights, slopes);
      sumTile(sight.diagonal, Rows::keys, keys, queries, weights, dOutRows, dv, padded, fresh);
      sumTile(sight.diagonal, Rows::keys, keys, queries, slopes, queryRows, dk, padded, fresh);
      if (queriesToo) {
        addQueryGradient(shape, sight, queries, keys, slopes, keyRows, dqRows,
                         at(call.dq, call.dqStrides, sequence, head, first), call.dqStrides.token);
      }
      fresh = false;
    }
  }
  storeRows(dk, keys, width, padded, shape.scale,
            at(call.dk, call.dkStrides, sequence, keyHead, tile * kTile), call.dkStrides.token);
  storeRows(dv, keys, width, padded, 1,
            at(call.dv, call.dvStrides, sequence, keyHead, tile * kTile), call.dvStrides.token);
}

// All gradients of one key-value head and its query heads: five products per pair of tiles, where
// keys and queries apart take seven.
static void headGradients(const AttentionBackward& call, size_t plane, float* scratch) {
  const AttentionShape& shape = call.shape;
  const size_t keyHead = plane % shape.keyHeads, sequence = plane / shape.keyHeads;
  const size_t group = shape.heads / shape.keyHeads;
  for (size_t head = keyHead * group; head < (keyHead + 1) * group; ++head) {
    for (size_t token = 0; token < shape.length; ++token) {
      std::memset(at(call.dq, call.dqStrides, sequence, head, token), 0,
                  shape.width * sizeof(float));
    }
  }
  for (size_t tile = 0; tile < shape.tiles; ++tile) {
    keyGradientTile<true>(call, tile, plane, scratch);
  }
}

// One tile of queries of one head: dq.
static void queryGradientTile(const AttentionBackward& call, size_t task, float* scratch) {
  const AttentionShape& shape = call.shape;
  const size_t tile = task % shape.tiles, plane = task / shape.tiles;
  const size_t head = plane % shape.heads, sequence = plane / shape.heads;
  const size_t keyHead = head / (shape.heads / shape.keyHeads);
  const size_t first = tile * kTile, queries = shape.rowsOf(tile);
  const size_t width = shape.width, padded = shape.padded;
  const int32_t* documents = shape.documentsOf(sequence);

  float* queryColumns = scratch;
  float* dOutColumns = queryColumns + kTile * width;
  float* weights = dOutColumns + kTile * width;
  float* slopes = weights + kTile * kTile;
  float* keyRows = slopes + kTile * kTile;
  float* dq = keyRows + kTile * padded;
  packColumns(rowsAt(call.q, call.qStrides, sequence, head, first), queries, width, 1,
              queryColumns);
  packColumns(rowsAt(call.dOut, call.outStrides, sequence, head, first), queries, width, 1,
              dOutColumns);
  F16 lse[kTileLanes], delta[kTileLanes];
  for (size_t lane = 0; lane < kTileLanes; ++lane) {
    const size_t start = plane * shape.length + first + 16 * lane;
    const size_t rest = 16 * lane < queries ? queries - 16 * lane : 0;
    lse[lane] = loadPart(call.lse + start, rest < 16 ? rest : 16);
    delta[lane] = loadPart(call.delta + start, rest < 16 ? rest : 16);
  }
  bool fresh = true;
  for (size_t keyTile = 0; keyTile <= tile; ++keyTile) {
    const Sight sight = sightOf(shape, documents, keyTile, tile);
    if (sight.blind) continue;
    const size_t keys = shape.rowsOf(keyTile);
    const HeadRows v = rowsAt(call.v, call.vStrides, sequence, keyHead, keyTile * kTile);
    packRows(rowsAt(call.k, call.kStrides, sequence, keyHead, keyTile * kTile), keys, width, padded,
             keyRows);
    scoreTile(sight.diagonal, Rows::keys, keys, width, keyRows, padded, queryColumns, weights);
    scoreTile(sight.diagonal, Rows::keys, keys, width, v.data, v.token, dOutColumns, slopes);
    for (size_t key = 0; key < keys; ++key) {
      for (size_t lane = sight.diagonal ? key / 16 : 0; lane < kTileLanes; ++lane) {
        float* slopeAt = slopes + key * kTile + 16 * lane;
        const F16 score = load(weights + key * kTile + 16 * lane);
        F16 weight = expFast(fma(score, splat(shape.scale), neg(lse[lane])));
        if (sight.masks(key / 16, lane)) {
          weight = select(sight.queriesOf(key, 16 * lane, queries), weight, splat(0));
        }
        store(slopeAt, weight * (load(slopeAt) - delta[lane]));
      }
    }
    sumTile(sight.diagonal, Rows::queries, queries, keys, slopes, keyRows, dq, padded, fresh);
    fresh = false;
  }
  storeRows(dq, queries, width, padded, shape.scale,
            at(call.dq, call.dqStrides, sequence, head, first), call.dqStrides.token);
}

static void attend(const AttentionForward& call, ThreadPool& pool, float* scratch) {
  const AttentionShape& shape = call.shape;
  const size_t perWorker = shape.forwardFloats();
  pool.parallelFor(shape.batch * shape.heads * shape.tiles, 1,
                   [&](size_t begin, size_t end, int worker) {
                     for (size_t task = begin; task < end; ++task) {
                       attendTile(call, task, scratch + worker * perWorker);
                     }
                   });
}

static void attendBackward(const AttentionBackward& call, ThreadPool& pool, float* scratch) {
  const AttentionShape& shape = call.shape;
  const size_t queryTasks = shape.batch * shape.heads * shape.tiles;
  const size_t keyTasks = shape.batch * shape.keyHeads * shape.tiles;
  const size_t perWorker = shape.backwardFloats();
  pool.parallelFor(queryTasks, 4, [&](size_t begin, size_t end) {
    for (size_t task = begin; task < end; ++task) deltaTile(call, task);
  });
  // Both ways give the same bits, so the number of threads may choose.
  const size_t planes = shape.batch * shape.keyHeads, threads = size_t(pool.size());
  if (planes % threads == 0 || planes >= 4 * threads) {
    pool.parallelFor(planes, 1, [&](size_t begin, size_t end, int worker) {
      for (size_t plane = begin; plane < end; ++plane) {
        headGradients(call, plane, scratch + worker * perWorker);
      }
    });
    return;
  }
  pool.parallelFor(keyTasks, 1, [&](size_t begin, size_t end, int worker) {
    for (size_t task = begin; task < end; ++task) {
      keyGradientTile<false>(call, task % shape.tiles, task / shape.tiles,
                             scratch + worker * perWorker);
    }
  });
  pool.parallelFor(queryTasks, 1, [&](size_t begin, size_t end, int worker) {
    for (size_t task = begin; task < end; ++task) {
      queryGradientTile(call, task, scratch + worker * perWorker);
    }
  });
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

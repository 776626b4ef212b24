// Body file of fused-attention.cc, once per instruction set: one tile after the other.
#include "simd.h"
#include "simd-math.h"
#include "tile-product.h"
#include "fused-exp.h"

namespace spillway {
namespace SPILLWAY_SIMD {

constexpr size_t kTile = kAttentionTile;
constexpr size_t kTileLanes = kTile / 16;

// Stands for the score of a key that a query may not see; no real score is as small.
constexpr float kMasked = -1e30f;
constexpr float kLeastScore = -1e29f;

// The rows `first …` of a head.
SPILLWAY_BODY HeadRows rowsAt(const float* x, const HeadStrides& strides, size_t sequence,
                              size_t head, size_t first) {
  return {x + sequence * strides.batch + head * strides.head + first * strides.token,
          strides.token};
}

// out[d][row] = factor·x[row][d], kTile rows wide, zeros beyond `rows`.
SPILLWAY_BODY void packColumns(HeadRows x, size_t rows, size_t width, float factor, float* out) {
  for (size_t row = 0; row < rows; ++row) {
    const float* source = x.data + row * x.token;
    for (size_t d = 0; d < width; ++d) out[d * kTile + row] = factor * source[d];
  }
  if (rows == kTile) return;
  for (size_t d = 0; d < width; ++d) {
    for (size_t row = rows; row < kTile; ++row) out[d * kTile + row] = 0;
  }
}

// out[row][…] = x[row][…], zeros from `width` to `padded`.
SPILLWAY_BODY void packRows(HeadRows x, size_t rows, size_t width, size_t padded, float* out) {
  const size_t whole = width / 16 * 16;
  for (size_t row = 0; row < rows; ++row, out += padded) {
    const float* source = x.data + row * x.token;
    for (size_t d = 0; d < whole; d += 16) store(out + d, load(source + d));
    if (whole < padded) store(out + whole, loadPart(source + whole, width - whole));
  }
}

// to[row][…] = factor·from[row][…]
SPILLWAY_BODY void storeRows(const float* from, size_t rows, size_t width, size_t padded,
                             float factor, float* to, size_t token) {
  const F16 factors = splat(factor);
  const size_t whole = width / 16 * 16;
  for (size_t row = 0; row < rows; ++row, from += padded, to += token) {
    for (size_t d = 0; d < whole; d += 16) store(to + d, load(from + d) * factors);
    if (whole < width) storePart(to + whole, load(from + whole) * factors, width - whole);
  }
}

// Which pairs of a tile of keys and a tile of queries see each other.
struct Sight {
  const int32_t *keyDocuments, *queryDocuments;  // of the tile's rows, or null
  bool diagonal;
  bool masks;  // some pair may be hidden
  bool blind;  // no pair sees the other

  // Lane l: whether query `query + l` of the tile sees key `key` of the tile.
  SPILLWAY_BODY M16 queriesOf(size_t key, size_t query, size_t queries) const {
    M16 seen = firstLanes(16);
    if (diagonal && query < key) seen = ~firstLanes(key - query < 16 ? key - query : 16);
    if (keyDocuments == nullptr) return seen;
    const size_t rest = query < queries ? queries - query : 0;
    const I16 documents = loadPart(queryDocuments + query, rest < 16 ? rest : 16);
    return seen & eq(splatI(keyDocuments[key]), documents);
  }

  // Lane l: whether query `query` of the tile sees key `key + l` of the tile.
  SPILLWAY_BODY M16 keysOf(size_t query, size_t key, size_t keys) const {
    M16 seen = firstLanes(16);
    if (diagonal) {
      seen = query < key ? firstLanes(0) : firstLanes(query - key + 1 < 16 ? query - key + 1 : 16);
    }
    if (keyDocuments == nullptr) return seen;
    const size_t rest = key < keys ? keys - key : 0;
    const I16 documents = loadPart(keyDocuments + key, rest < 16 ? rest : 16);
    return seen & eq(splatI(queryDocuments[query]), documents);
  }
};

SPILLWAY_BODY Sight sightOf(const AttentionShape& shape, const int32_t* documents, size_t keyTile,
                            size_t queryTile) {
  Sight sight{nullptr, nullptr, keyTile == queryTile, keyTile == queryTile, false};
  if (documents == nullptr) return sight;
  sight.keyDocuments = documents + keyTile * kTile;
  sight.queryDocuments = documents + queryTile * kTile;
  const size_t keys = shape.rowsOf(keyTile), queries = shape.rowsOf(queryTile);
  const int32_t first = sight.keyDocuments[0];
  bool same = true;
  for (size_t key = 0; key < keys; ++key) same &= sight.keyDocuments[key] == first;
  for (size_t query = 0; query < queries; ++query) same &= sight.queryDocuments[query] == first;
  if (same) {
    sight.keyDocuments = sight.queryDocuments = nullptr;
    return sight;
  }
  sight.masks = true;
  if (sight.diagonal) return sight;
  // Ranges that do not meet: the usual case of documents packed one after the other.
  int32_t least[2] = {INT32_MAX, INT32_MAX}, most[2] = {INT32_MIN, INT32_MIN};
  const int32_t* lists[2] = {sight.keyDocuments, sight.queryDocuments};
  const size_t counts[2] = {keys, queries};
  for (int list = 0; list < 2; ++list) {
    for (size_t row = 0; row < counts[list]; ++row) {
      const int32_t id = lists[list][row];
      least[list] = id < least[list] ? id : least[list];
      most[list] = id > most[list] ? id : most[list];
    }
  }
  sight.blind = most[0] < least[1] || most[1] < least[0];
  return sight;
}

// Floats of one worker's scratch.
SPILLWAY_BODY size_t forwardScratch(const AttentionShape& shape) {
  return kTile * (shape.width + kTile + 2 * shape.padded);
}
SPILLWAY_BODY size_t keyGradientScratch(const AttentionShape& shape) {
  return kTile * (2 * shape.width + 2 * kTile + 4 * shape.padded);
}
SPILLWAY_BODY size_t queryGradientScratch(const AttentionShape& shape) {
  return kTile * (2 * shape.width + 2 * kTile + 2 * shape.padded);
}

// Running maximum and sum of exponentials of a tile of queries (Milakov and Gimelshein 2018).
struct Statistics {
  F16 largest[kTileLanes];
  F16 total[kTileLanes];
};

// Turns scores [keys][kTile queries] into exp(score - largest); returns whether the maximum of a
// query rose, with factors[query] for what was summed before.
SPILLWAY_BODY bool softmaxTile(const Sight& sight, size_t keys, size_t queries, float* scores,
                               Statistics& state, float* factors) {
  bool rose = false;
  for (size_t lane = 0; lane < kTileLanes; ++lane) {
    float* column = scores + 16 * lane;
    F16 largest = state.largest[lane];
    for (size_t key = 0; key < keys; ++key) {
      F16 score = load(column + key * kTile);
      if (sight.masks) {
        score = select(sight.queriesOf(key, 16 * lane, queries), score, splat(kMasked));
        store(column + key * kTile, score);
      }
      largest = max(largest, score);
    }
    const F16 factor = expFast(state.largest[lane] - largest);
    rose |= any(ne(factor, splat(1)));
    store(factors + 16 * lane, factor);
    F16 total = state.total[lane] * factor;
    for (size_t key = 0; key < keys; ++key) {
      const F16 score = load(column + key * kTile);
      F16 weight = expFast(score - largest);
      // Only in a query that sees no key so far is the maximum itself a mask.
      if (sight.masks) weight = select(lt(score, splat(kLeastScore)), splat(0), weight);
      store(column + key * kTile, weight);
      total = total + weight;
    }
    state.largest[lane] = largest;
    state.total[lane] = total;
  }
  return rose;
}

SPILLWAY_BODY void scaleRows(float* rows, const float* factors, size_t count, size_t padded) {
  for (size_t row = 0; row < count; ++row, rows += padded) {
    const F16 factor = splat(factors[row]);
    for (size_t d = 0; d < padded; d += 16) store(rows + d, load(rows + d) * factor);
  }
}

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
    tileProduct(keys, kTileLanes, width, k.data, k.token, 1, columns, kTile, scores, kTile, true);
    const bool rose = softmaxTile(sight, keys, queries, scores, state, factors);
    packRows(rowsAt(call.v, call.vStrides, sequence, keyHead, keyTile * kTile), keys, width, padded,
             values);
    if (rose && !fresh) scaleRows(sums, factors, queries, padded);
    tileProduct(queries, padded / 16, keys, scores, 1, kTile, values, padded, sums, padded, fresh);
    fresh = false;
  }
  alignas(64) float lse[kTile];
  for (size_t lane = 0; lane < kTileLanes; ++lane) {
    store(factors + 16 * lane, splat(1) / state.total[lane]);
    store(lse + 16 * lane, state.largest[lane] + log(state.total[lane]));
  }
  scaleRows(sums, factors, queries, padded);
  storeRows(sums, queries, width, padded, 1,
            call.out + sequence * call.outStrides.batch + head * call.outStrides.head +
                first * call.outStrides.token,
            call.outStrides.token);
  float* target = call.lse + (sequence * shape.heads + head) * shape.length + first;
  for (size_t query = 0; query < queries; ++query) target[query] = lse[query];
}

// delta = rowsum(dOut·out) of one tile of queries of one head: 16 lanes, then those ascending.
static void deltaTile(const AttentionBackward& call, size_t task) {
  const AttentionShape& shape = call.shape;
  const size_t tile = task % shape.tiles, plane = task / shape.tiles;
  const size_t head = plane % shape.heads, sequence = plane / shape.heads;
  const HeadRows out = rowsAt(call.out, call.outStrides, sequence, head, tile * kTile);
  const HeadRows dOut = rowsAt(call.dOut, call.outStrides, sequence, head, tile * kTile);
  float* delta = call.delta + plane * shape.length + tile * kTile;
  for (size_t row = 0; row < shape.rowsOf(tile); ++row) {
    const float* a = out.data + row * out.token;
    const float* b = dOut.data + row * dOut.token;
    F16 sum = splat(0);
    for (size_t d = 0; d < shape.width; d += 16) {
      const size_t rest = shape.width - d < 16 ? shape.width - d : 16;
      sum = fma(loadPart(a + d, rest), loadPart(b + d, rest), sum);
    }
    delta[row] = float(sumLanes(widen(sum)));
  }
}

// One tile of keys of one key-value head: dk and dv, over all query heads and tiles that see it.
static void keyGradientTile(const AttentionBackward& call, size_t task, float* scratch) {
  const AttentionShape& shape = call.shape;
  const size_t tile = task % shape.tiles, plane = task / shape.tiles;
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
  packColumns(rowsAt(call.k, call.kStrides, sequence, keyHead, tile * kTile), keys, width,
              shape.scale, keyColumns);
  packColumns(rowsAt(call.v, call.vStrides, sequence, keyHead, tile * kTile), keys, width, 1,
              valueColumns);
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
      tileProduct(queries, kTileLanes, width, queryRows, padded, 1, keyColumns, kTile, weights,
                  kTile, true);
      tileProduct(queries, kTileLanes, width, dOutRows, padded, 1, valueColumns, kTile, slopes,
                  kTile, true);
      for (size_t query = 0; query < queries; ++query) {
        const F16 lse = splat(call.lse[statistics + first + query]);
        const F16 delta = splat(call.delta[statistics + first + query]);
        for (size_t lane = 0; lane < kTileLanes; ++lane) {
          float* weightAt = weights + query * kTile + 16 * lane;
          float* slopeAt = slopes + query * kTile + 16 * lane;
          F16 weight = expFast(load(weightAt) - lse);
          if (sight.masks) {
            weight = select(sight.keysOf(query, 16 * lane, keys), weight, splat(0));
          }
          store(weightAt, weight);
          store(slopeAt, weight * (load(slopeAt) - delta));
        }
      }
      tileProduct(keys, padded / 16, queries, weights, 1, kTile, dOutRows, padded, dv, padded,
                  fresh);
      tileProduct(keys, padded / 16, queries, slopes, 1, kTile, queryRows, padded, dk, padded,
                  fresh);
      fresh = false;
    }
  }
  storeRows(dk, keys, width, padded, shape.scale,
            call.dk + sequence * call.dkStrides.batch + keyHead * call.dkStrides.head +
                tile * kTile * call.dkStrides.token,
            call.dkStrides.token);
  storeRows(dv, keys, width, padded, 1,
            call.dv + sequence * call.dvStrides.batch + keyHead * call.dvStrides.head +
                tile * kTile * call.dvStrides.token,
            call.dvStrides.token);
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
  packColumns(rowsAt(call.q, call.qStrides, sequence, head, first), queries, width, shape.scale,
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
    tileProduct(keys, kTileLanes, width, keyRows, padded, 1, queryColumns, kTile, weights, kTile,
                true);
    tileProduct(keys, kTileLanes, width, v.data, v.token, 1, dOutColumns, kTile, slopes, kTile,
                true);
    for (size_t key = 0; key < keys; ++key) {
      for (size_t lane = 0; lane < kTileLanes; ++lane) {
        float* slopeAt = slopes + key * kTile + 16 * lane;
        F16 weight = expFast(load(weights + key * kTile + 16 * lane) - lse[lane]);
        if (sight.masks) {
          weight = select(sight.queriesOf(key, 16 * lane, queries), weight, splat(0));
        }
        store(slopeAt, weight * (load(slopeAt) - delta[lane]));
      }
    }
    tileProduct(queries, padded / 16, keys, slopes, 1, kTile, keyRows, padded, dq, padded, fresh);
    fresh = false;
  }
  storeRows(dq, queries, width, padded, shape.scale,
            call.dq + sequence * call.dqStrides.batch + head * call.dqStrides.head +
                first * call.dqStrides.token,
            call.dqStrides.token);
}

static void attend(const AttentionForward& call, ThreadPool& pool, float* scratch) {
  const AttentionShape& shape = call.shape;
  const size_t perWorker = forwardScratch(shape);
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
  const size_t perWorker = keyGradientScratch(shape);
  pool.parallelFor(queryTasks, 4, [&](size_t begin, size_t end) {
    for (size_t task = begin; task < end; ++task) deltaTile(call, task);
  });
  // A task of dk and dv is about twice one of dq, and `group` heads long: those first.
  pool.parallelFor(keyTasks, 1, [&](size_t begin, size_t end, int worker) {
    for (size_t task = begin; task < end; ++task) {
      keyGradientTile(call, task, scratch + worker * perWorker);
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

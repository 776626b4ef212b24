// What the attention kernels do with one tile, once per instruction set: packing, what is in sight,
// scores, softmax and sums. Included by fused-attention-body.h.
namespace spillway {
namespace SPILLWAY_SIMD {

constexpr size_t kTile = kAttentionTile;
constexpr size_t kTileLanes = kTile / 16;

// Stands for the score of a key that a query may not see; no real score is as small.
constexpr float kMasked = -1e30f;
constexpr float kLeastScore = -1e29f;

// Row `first` of a head.
template <class T>
SPILLWAY_BODY T* at(T* x, const HeadStrides& strides, size_t sequence, size_t head, size_t first) {
  return x + sequence * strides.batch + head * strides.head + first * strides.token;
}

// The rows `first …` of a head.
SPILLWAY_BODY HeadRows rowsAt(const float* x, const HeadStrides& strides, size_t sequence,
                              size_t head, size_t first) {
  return {at(x, strides, sequence, head, first), strides.token};
}

// Four rows of four, transposed: out[d][row] = factor·x[row][d].
SPILLWAY_BODY void transposeFour(const float* x, size_t token, float factor, float* out) {
  typedef float Four __attribute__((vector_size(16)));
  Four rows[4];
  for (size_t row = 0; row < 4; ++row) std::memcpy(&rows[row], x + row * token, sizeof rows[row]);
  const Four low01 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Four low23 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Four high23 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  const Four columns[4] = {factor * __builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                           factor * __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                           factor * __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                           factor * __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (size_t d = 0; d < 4; ++d) std::memcpy(out + d * kTile, &columns[d], sizeof columns[d]);
}

// out[d][row] = factor·x[row][d], kTile rows wide, zeros beyond `rows`.
SPILLWAY_BODY void packColumns(HeadRows x, size_t rows, size_t width, float factor, float* out) {
  const size_t wholeRows = rows / 4 * 4, wholeWidth = width / 4 * 4;
  for (size_t row = 0; row < wholeRows; row += 4) {
    const float* source = x.data + row * x.token;
    for (size_t d = 0; d < wholeWidth; d += 4) {
      transposeFour(source + d, x.token, factor, out + d * kTile + row);
    }
  }
  for (size_t row = 0; row < rows; ++row) {
    const float* source = x.data + row * x.token;
    for (size_t d = row < wholeRows ? wholeWidth : 0; d < width; ++d) {
      out[d * kTile + row] = factor * source[d];
    }
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
  bool diagonal;  // the tile of keys is the tile of queries
  bool blind;     // no pair sees the other

  // Whether some pair is hidden of vector `strip` of the tile's rows and vector `lane` of its
  // columns. On the diagonal, vectors on the far side of it are not computed at all.
  SPILLWAY_BODY bool masks(size_t strip, size_t lane) const {
    return keyDocuments != nullptr || (diagonal && strip == lane);
  }

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
  Sight sight{nullptr, nullptr, keyTile == queryTile, false};
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

// Running maximum and sum of exponentials of a tile of queries (Milakov and Gimelshein 2018).
struct Statistics {
  F16 largest[kTileLanes];
  F16 total[kTileLanes];
};

// What the rows of a tile are; its columns are the other. A diagonal tile is worked on in strips of
// 16 rows, and of each strip only the vectors of columns that it sees: queries from the strip on
// when rows are keys, keys up to the strip when rows are queries.
enum class Rows { keys, queries };

// scores[rows][kTile] = A·B, B packed in columns; of a diagonal tile only what is seen.
SPILLWAY_BODY void scoreTile(bool diagonal, Rows kind, size_t rows, size_t depth, const float* a,
                             size_t rowA, const float* b, float* scores) {
  if (!diagonal) {
    return tileProduct(rows, kTileLanes, depth, a, rowA, 1, b, kTile, scores, kTile, true);
  }
  for (size_t first = 0; first < rows; first += 16) {
    const size_t count = rows - first < 16 ? rows - first : 16;
    const size_t column = kind == Rows::keys ? first : 0;
    const size_t vectors = kind == Rows::keys ? kTileLanes - first / 16 : first / 16 + 1;
    tileProduct(count, vectors, depth, a + first * rowA, rowA, 1, b + column, kTile,
                scores + first * kTile + column, kTile, true);
  }
}

// sums[rows][padded] (+)= weightsᵀ·B, weights [depth][kTile]; of a diagonal tile only what is seen.
SPILLWAY_BODY void sumTile(bool diagonal, Rows kind, size_t rows, size_t depth,
                           const float* weights, const float* b, float* sums, size_t padded,
                           bool fresh) {
  if (!diagonal) {
    return tileProduct(rows, padded / 16, depth, weights, 1, kTile, b, padded, sums, padded, fresh);
  }
  for (size_t first = 0; first < rows; first += 16) {
    const size_t count = rows - first < 16 ? rows - first : 16;
    const size_t start = kind == Rows::keys ? first : 0;
    const size_t end = kind == Rows::keys ? depth : (first + 16 < depth ? first + 16 : depth);
    tileProduct(count, padded / 16, end - start, weights + start * kTile + first, 1, kTile,
                b + start * padded, padded, sums + first * padded, padded, fresh);
  }
}

// Raises `largest` to the scores of keys begin … end, hidden ones set to kMasked; vectors of
// queries from kFirst on.
template <size_t kFirst>
SPILLWAY_BODY void raiseLargest(const Sight& sight, size_t begin, size_t end, size_t queries,
                                float* scores, F16* largest) {
  for (size_t key = begin; key < end; ++key) {
#pragma GCC unroll 4
    for (size_t lane = kFirst; lane < kTileLanes; ++lane) {
      float* place = scores + key * kTile + 16 * lane;
      F16 score = load(place);
      if (sight.masks(key / 16, lane)) {
        score = select(sight.queriesOf(key, 16 * lane, queries), score, splat(kMasked));
        store(place, score);
      }
      largest[lane] = max(largest[lane], score);
    }
  }
}

// Turns scores into exp(score - largest) and adds them to `total`.
template <size_t kFirst>
SPILLWAY_BODY void addWeights(const Sight& sight, size_t begin, size_t end, float* scores,
                              const F16* largest, F16* total) {
  for (size_t key = begin; key < end; ++key) {
#pragma GCC unroll 4
    for (size_t lane = kFirst; lane < kTileLanes; ++lane) {
      float* place = scores + key * kTile + 16 * lane;
      const F16 score = load(place);
      F16 weight = expFast(score - largest[lane]);
      // Only in a query that sees no key so far is the maximum itself a mask.
      if (sight.masks(key / 16, lane)) {
        weight = select(lt(score, splat(kLeastScore)), splat(0), weight);
      }
      store(place, weight);
      total[lane] = total[lane] + weight;
    }
  }
}

// Turns scores [keys][kTile queries] into exp(score - largest); returns whether the maximum of a
// query rose, with factors[query] for what was summed before.
SPILLWAY_BODY bool softmaxTile(const Sight& sight, size_t keys, size_t queries, float* scores,
                               Statistics& state, float* factors) {
  static_assert(kTileLanes == 4, "one call per vector of queries");
  const size_t whole = sight.diagonal ? (keys < 16 ? keys : 16) : keys;
  const size_t second = keys < 32 ? keys : 32, third = keys < 48 ? keys : 48;
  const bool strips = sight.diagonal && keys > 16;
  F16 largest[kTileLanes], total[kTileLanes];
  for (size_t lane = 0; lane < kTileLanes; ++lane) largest[lane] = state.largest[lane];
  raiseLargest<0>(sight, 0, whole, queries, scores, largest);
  if (strips) {
    raiseLargest<1>(sight, 16, second, queries, scores, largest);
    raiseLargest<2>(sight, second, third, queries, scores, largest);
    raiseLargest<3>(sight, third, keys, queries, scores, largest);
  }
  bool rose = false;
  for (size_t lane = 0; lane < kTileLanes; ++lane) {
    const F16 factor = expFast(state.largest[lane] - largest[lane]);
    rose |= any(ne(factor, splat(1)));
    store(factors + 16 * lane, factor);
    total[lane] = state.total[lane] * factor;
  }
  addWeights<0>(sight, 0, whole, scores, largest, total);
  if (strips) {
    addWeights<1>(sight, 16, second, scores, largest, total);
    addWeights<2>(sight, second, third, scores, largest, total);
    addWeights<3>(sight, third, keys, scores, largest, total);
  }
  for (size_t lane = 0; lane < kTileLanes; ++lane) {
    state.largest[lane] = largest[lane];
    state.total[lane] = total[lane];
  }
  return rose;
}

SPILLWAY_BODY void scaleRows(float* rows, const float* factors, size_t count, size_t padded) {
  for (size_t row = 0; row < count; ++row, rows += padded) {
    const F16 factor = splat(factors[row]);
    for (size_t d = 0; d < padded; d += 16) store(rows + d, load(rows + d) * factor);
  }
}

// Turns scores [queries][kTile keys] into weights, and slopes (dOut·Vᵀ) into gradients of the
// scores.
SPILLWAY_BODY void slopeTile(const Sight& sight, size_t queries, size_t keys, float scale,
                             const float* lses, const float* deltas, float* weights,
                             float* slopes) {
  for (size_t query = 0; query < queries; ++query) {
    const F16 lse = splat(lses[query]), delta = splat(deltas[query]);
    const size_t lanes = sight.diagonal ? query / 16 + 1 : kTileLanes;
    for (size_t lane = 0; lane < lanes; ++lane) {
      float* weightAt = weights + query * kTile + 16 * lane;
      float* slopeAt = slopes + query * kTile + 16 * lane;
      F16 weight = expFast(fma(load(weightAt), splat(scale), neg(lse)));
      if (sight.masks(query / 16, lane)) {
        weight = select(sight.keysOf(query, 16 * lane, keys), weight, splat(0));
      }
      store(weightAt, weight);
      store(slopeAt, weight * (load(slopeAt) - delta));
    }
  }
}

// dq (+)= slopes·K of a tile of queries, in the output itself; the last tile of keys scales it.
SPILLWAY_BODY void addQueryGradient(const AttentionShape& shape, const Sight& sight, size_t queries,
                                    size_t keys, const float* slopes, const float* keyRows,
                                    float* rows, float* dq, size_t token) {
  const size_t width = shape.width, padded = shape.padded;
  packRows({dq, token}, queries, width, padded, rows);
  for (size_t first = 0; first < queries; first += 16) {
    const size_t count = queries - first < 16 ? queries - first : 16;
    const size_t seen = sight.diagonal && first + 16 < keys ? first + 16 : keys;
    tileProduct(count, padded / 16, seen, slopes + first * kTile, kTile, 1, keyRows, padded,
                rows + first * padded, padded, false);
  }
  storeRows(rows, queries, width, padded, sight.diagonal ? shape.scale : 1, dq, token);
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

// What one call of the cached attention kernel works on; see cached-attention.cc.
#pragma once

#include "fused-attention.h"

namespace spillway {

// Rows of keys or values of one sequence: the earlier ones in a cache, the new ones in a tensor.
struct CachedRows {
  const float *cached, *added;
  size_t cachedToken, addedToken;  // elements from one row to the next
};

struct CachedAttention {
  size_t first;    // rows in the cache; the position of the first query
  size_t queries;  // new rows
  size_t heads, keyHeads, width;
  size_t tiles;   // of queries
  size_t padded;  // width, up to a whole number of vectors
  float scale;    // 1/sqrt(width)
  const float* q;
  size_t qToken;
  CachedRows k, v;
  float* out;  // [queries, heads·width]

  // Scratch of one worker.
  size_t workerFloats() const {
    return kAttentionTile * (3 * width + kAttentionTile + 2 * padded);
  }
};

}  // namespace spillway

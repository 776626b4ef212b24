// Attention of the next rows of a sequence to the earlier ones, whose keys and values lie in a
// cache, and to one another; what generation does where training has attention (fused-attention.cc).
//
// Tiles of 64 keys ascend from position 0 with an online softmax, as there, and every sum is the
// same chain of fma: a query's row has the bits that attention over the whole sequence gives it,
// however the sequence was cut into calls. Only the work is laid out otherwise: scores lie
// [query][key], so that a single query fills the lanes.
#include "cached-attention.h"
#include "tile-vectors.h"

#define SPILLWAY_BODY_FILE "cached-attention-body.h"
#include "simd-targets.h"

namespace spillway {
namespace {

void run(const CachedAttention& call, ThreadPool& pool, float* scratch) {
  SPILLWAY_DISPATCH(attendCached, (call, pool, scratch));
}

size_t countAt(const KernelCall& call, size_t index) { return static_cast<size_t>(call.i(index)); }

}  // namespace

// cachedAttention(q, k, v, cached k, cached v, out, rows in the cache, new rows, H, Hkv, D, elements
// from row to row of q, of k and v, and of the cache)
SPILLWAY_KERNEL(cachedAttention) {
  CachedAttention attention;
  attention.first = countAt(call, 6);
  attention.queries = countAt(call, 7);
  attention.heads = countAt(call, 8);
  attention.keyHeads = countAt(call, 9);
  attention.width = countAt(call, 10);
  attention.tiles = (attention.queries + kAttentionTile - 1) / kAttentionTile;
  attention.padded = (attention.width + 15) / 16 * 16;
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(attention.width)));
  attention.q = call.ptr<float>(0);
  attention.qToken = countAt(call, 11);
  const size_t added = countAt(call, 12), cached = countAt(call, 13);
  attention.k = {call.ptr<float>(3), call.ptr<float>(1), cached, added};
  attention.v = {call.ptr<float>(4), call.ptr<float>(2), cached, added};
  attention.out = call.ptr<float>(5);
  const size_t floats = static_cast<size_t>(call.pool.size()) * attention.workerFloats();
  run(attention, call.pool, call.scratch(floats));
}

}  // namespace spillway

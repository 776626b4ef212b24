// Causal attention with grouped heads, forward and backward, without a [T, T] matrix (Dao et al.
// 2022, arXiv 2205.14135).
//
// A tile is 64 queries or 64 keys. Forward: per tile of queries, tiles of keys ascending with an
// online softmax; scores lie [key][query], so that each lane is one query and its maximum and sum
// are chains over ascending keys. It keeps lse = log Σ exp(score) per query. Backward computes the
// weights again: first delta = rowsum(dOut·out), then
//
//     P = exp(S - lse),  dV = Pᵀ·dO,  dS = P·(dO·Vᵀ - delta),  dQ = scale·dS·K,  dK = scale·dSᵀ·Q
//
// in one of two ways. Per key-value head, tiles of keys ascending, within each the query heads and
// tiles of queries: five products per pair of tiles, and dq grows in its output. Where the heads
// are too few for the threads: dk and dv per tile of keys, then dq per tile of queries, whose tasks
// share nothing; seven products. Every element of every gradient is the same chain of fma either
// way (dk, dv: heads, tiles of queries, queries ascending; dq: keys ascending), so results depend
// neither on threads nor on the instruction set.
//
// Optional documents [B, T]: a query sees only keys of its own document.
#include "fused-attention.h"
#include "tile-vectors.h"

#define SPILLWAY_BODY_FILE "fused-attention-body.h"
#include "simd-targets.h"

namespace spillway {
namespace {

HeadStrides stridesAt(const KernelCall& call, size_t index) {
  return {static_cast<size_t>(call.i(index)), static_cast<size_t>(call.i(index + 1)),
          static_cast<size_t>(call.i(index + 2))};
}

// Arguments `index …`: documents' offset (-1: none), B, T, H, Hkv, D.
AttentionShape shapeAt(const KernelCall& call, size_t index) {
  AttentionShape shape;
  shape.documents = call.i(index) < 0 ? nullptr : call.ptr<int32_t>(index);
  shape.batch = static_cast<size_t>(call.i(index + 1));
  shape.length = static_cast<size_t>(call.i(index + 2));
  shape.heads = static_cast<size_t>(call.i(index + 3));
  shape.keyHeads = static_cast<size_t>(call.i(index + 4));
  shape.width = static_cast<size_t>(call.i(index + 5));
  shape.tiles = (shape.length + kAttentionTile - 1) / kAttentionTile;
  shape.padded = (shape.width + 15) / 16 * 16;
  shape.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.width)));
  return shape;
}

size_t workersOf(const KernelCall& call) { return static_cast<size_t>(call.pool.size()); }

void runForward(const AttentionForward& call, ThreadPool& pool, float* scratch) {
  SPILLWAY_DISPATCH(attend, (call, pool, scratch));
}

void runBackward(const AttentionBackward& call, ThreadPool& pool, float* scratch) {
  SPILLWAY_DISPATCH(attendBackward, (call, pool, scratch));
}

}  // namespace

// attention(q, k, v, out, lse, documents, B, T, H, Hkv, D, strides of q, k, v, out: batch, head,
// token each)
SPILLWAY_KERNEL(attention) {
  const AttentionForward forward{shapeAt(call, 5),
                                 call.ptr<float>(0),
                                 call.ptr<float>(1),
                                 call.ptr<float>(2),
                                 call.ptr<float>(3),
                                 call.ptr<float>(4),
                                 stridesAt(call, 11),
                                 stridesAt(call, 14),
                                 stridesAt(call, 17),
                                 stridesAt(call, 20)};
  const size_t floats = workersOf(call) * forward.shape.forwardFloats();
  runForward(forward, call.pool, call.scratch(floats));
}

// attentionGrad(q, k, v, out, lse, dOut, delta [B, H, T] of scratch, dq, dk, dv, documents, B, T,
// H, Hkv, D, strides of q, k, v, out and dOut, dq, dk, dv)
SPILLWAY_KERNEL(attentionGrad) {
  const AttentionBackward backward{shapeAt(call, 10),   call.ptr<float>(0),  call.ptr<float>(1),
                                   call.ptr<float>(2),  call.ptr<float>(3),  call.ptr<float>(4),
                                   call.ptr<float>(5),  call.ptr<float>(6),  call.ptr<float>(7),
                                   call.ptr<float>(8),  call.ptr<float>(9),  stridesAt(call, 16),
                                   stridesAt(call, 19), stridesAt(call, 22), stridesAt(call, 25),
                                   stridesAt(call, 28), stridesAt(call, 31), stridesAt(call, 34)};
  const size_t floats = workersOf(call) * backward.shape.backwardFloats();
  runBackward(backward, call.pool, call.scratch(floats));
}

}  // namespace spillway

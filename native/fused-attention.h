// What one call of the attention kernels works on; see fused-attention.cc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway {

// Queries and keys per tile. A property of the arithmetic (it orders sums), not of the machine.
constexpr size_t kAttentionTile = 64;

// Element strides of a [B, H, T, D] operand, wherever it lies; D is contiguous.
struct HeadStrides {
  size_t batch, head, token;
};

// Rows of one head of one sequence.
struct HeadRows {
  const float* data;
  size_t token;
};

struct AttentionShape {
  size_t batch, length, heads, keyHeads, width;
  const int32_t* documents;  // [B, T], or null: one document per sequence
  size_t tiles;              // of queries, and of keys
  size_t padded;             // width, up to a whole number of vectors
  float scale;               // 1/sqrt(width)

  size_t rowsOf(size_t tile) const {
    const size_t rest = length - tile * kAttentionTile;
    return rest < kAttentionTile ? rest : kAttentionTile;
  }
  // Scratch of one worker.
  size_t forwardFloats() const { return kAttentionTile * (width + kAttentionTile + 2 * padded); }
  size_t backwardFloats() const {
    return kAttentionTile * (2 * width + 2 * kAttentionTile + 6 * padded);
  }
  const int32_t* documentsOf(size_t sequence) const {
    return documents == nullptr ? nullptr : documents + sequence * length;
  }
};

struct AttentionForward {
  AttentionShape shape;
  const float *q, *k, *v;
  float *out, *lse;
  HeadStrides qStrides, kStrides, vStrides, outStrides;
};

struct AttentionBackward {
  AttentionShape shape;
  const float *q, *k, *v, *out, *lse, *dOut;
  float *delta, *dq, *dk, *dv;
  HeadStrides qStrides, kStrides, vStrides, outStrides, dqStrides, dkStrides, dvStrides;
};

}  // namespace spillway

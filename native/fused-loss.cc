// Cross-entropy over a vocabulary that comes in tiles: online softmax (Milakov and Gimelshein 2018,
// arXiv 1805.02867) over the logits [n, R] of n tokens and R words, and their gradient in place.
//
// Token t has the label of token t + 1; the last of each sequence, and a negative label, count
// nothing.
#include "kernel.h"

namespace spillway {
namespace {

// The labels of the tile's rows.
struct Labels {
  const int32_t* data;  // [B, T]
  size_t firstToken, length;

  // Of the row's target, negative when it does not count.
  int64_t of(size_t row) const {
    const size_t token = firstToken + row;
    return token % length == length - 1 ? -1 : data[token + 1];
  }
};

struct LossTile {
  const float* logits;  // [rows, width]
  const float *largest, *total, *target;
  float *newLargest, *newTotal, *newTarget;
  size_t rows, width;
  int64_t firstRow;  // the vocabulary's word of column 0
  Labels labels;

  // Column of the row's target; negative or `width` and more when it is not in this tile.
  int64_t columnOf(size_t row) const {
    const int64_t label = labels.of(row);
    return label < 0 ? -1 : label - firstRow;
  }
};

struct LossTileGrad {
  float* logits;  // becomes the gradient
  const float* lse;
  size_t rows, width;
  int64_t firstRow;
  Labels labels;
  float scale;
};

// Elements below which a second thread costs more than it saves.
constexpr size_t kGrain = 1 << 13;

}  // namespace
}  // namespace spillway

#define SPILLWAY_BODY_FILE "fused-loss-body.h"
#include "simd-targets.h"

namespace spillway {
namespace {

Labels labelsAt(const KernelCall& call, size_t index) {
  return {call.ptr<int32_t>(index), size_t(call.i(index + 1)), size_t(call.i(index + 2))};
}

void run(const LossTile& tile, ThreadPool& pool) { SPILLWAY_DISPATCH(lossTile, (tile, pool)); }
void run(const LossTileGrad& tile, ThreadPool& pool) {
  SPILLWAY_DISPATCH(lossTileGrad, (tile, pool));
}

}  // namespace

// lossTile(logits, largest, total, target, new largest, new total, new target, rows, width, first
// word, labels, first token, T)
SPILLWAY_KERNEL(lossTile) {
  run(LossTile{call.ptr<float>(0), call.ptr<float>(1), call.ptr<float>(2), call.ptr<float>(3),
               call.ptr<float>(4), call.ptr<float>(5), call.ptr<float>(6), size_t(call.i(7)),
               size_t(call.i(8)), call.i(9), labelsAt(call, 10)},
      call.pool);
}

// lossTileGrad(logits, becoming their gradient, lse, rows, width, first word, labels, first token,
// T, scale)
SPILLWAY_KERNEL(lossTileGrad) {
  run(LossTileGrad{call.ptr<float>(0), call.ptr<float>(1), size_t(call.i(2)), size_t(call.i(3)),
                   call.i(4), labelsAt(call, 5), call.f(8)},
      call.pool);
}

}  // namespace spillway

// How a product runs: which operand gives the rows and which the lanes (gemm-isa.h), what is packed
// and what is read where it lies. A plan depends on sizes, forms and the instruction set, and never
// on the number of threads; no result depends on it.
//
// Ownership: a plan borrows the product.
#pragma once

#include "gemm-isa.h"
#include "gemm.h"

namespace spillway {

inline size_t ceilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

struct Range {
  size_t begin, end;
  size_t size() const { return end - begin; }
};

// Part `index` of [0, count) in `parts` nearly equal parts.
inline Range partOf(size_t count, size_t parts, size_t index) {
  return {index * count / parts, (index + 1) * count / parts};
}

// An operand with its index (row or lane) apart from k.
struct GemmSide {
  const char* data;
  bool bf16;
  // Whether neighbours in memory differ in k.
  bool alongK;
  ptrdiff_t leading, batchStride;

  ptrdiff_t elementBytes() const { return bf16 ? 2 : 4; }
  const void* at(size_t batch, size_t index, size_t k) const {
    const auto i = static_cast<ptrdiff_t>(index), step = static_cast<ptrdiff_t>(k);
    const ptrdiff_t element = static_cast<ptrdiff_t>(batch) * batchStride +
                              (alongK ? i * leading + step : step * leading + i);
    return data + element * elementBytes();
  }
};

// Steps of k per block when rows are read in place by row-major tiles, the most of any block: it is
// the row panel that must stay in the first-level cache.
constexpr size_t kGemmMostSteps = 1024;

struct GemmPlan {
  explicit GemmPlan(const Gemm& product);

  const Gemm& g;
  const GemmIsa& isa;
  // Whether rows are the columns of op(B) and lanes the rows of op(A), and C is written transposed.
  bool swapped;
  size_t rows, lanes;
  GemmSide row, lane;
  ptrdiff_t cRow, cLane;
  // Rows read in place, by row-major or by k-major tiles; lanes read in place.
  bool directRows, rowMajor, directLanes;
  // Most rows of a panel; most vectors (as an index) and lanes of a lane panel.
  size_t panelRows, width, panelLanes;
  // Most steps of k per block, most lane panels per task, least row panels per task.
  size_t blockSteps, taskLanePanels, taskRowPanels;

  size_t rowPanels() const { return ceilDiv(rows, panelRows); }
  // Panels differ by at most one row.
  Range rowsOf(size_t panel) const { return partOf(rows, rowPanels(), panel); }
  float* cAt(size_t batch, size_t rowIndex, size_t laneIndex) const {
    return g.c + static_cast<ptrdiff_t>(batch) * g.batchStrideC +
           static_cast<ptrdiff_t>(rowIndex) * cRow +
           static_cast<ptrdiff_t>(laneIndex) * cLane;
  }
};


}  // namespace spillway

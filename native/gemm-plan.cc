#include "gemm-plan.h"

namespace spillway {
namespace {

// Steps of k per block. Packed lanes: a panel of 32 takes 48 KiB, the first-level cache.
constexpr size_t kBlockSteps = 384;
// Rows in place, k-major: a cache line is used by two row panels in turn, so that the lines of a
// block must stay in the second-level cache even when they are 4 KiB apart.
constexpr size_t kKMajorSteps = 256;
// Few rows: this many rows of the lanes' memory, each read from one end of a task to the other, are
// what the hardware prefetches; C stays in the second-level cache.
constexpr size_t kStreamSteps = 32;

// With at most this many lanes, packing rows would cost a good part of their use.
constexpr size_t kFewLanes = 128;

// Lane panels of a task: C's columns of a task stay in the second-level cache between blocks.
constexpr size_t kTaskPanels = 8;
constexpr size_t kStreamPanels = 128;
// A task that packs lanes has at least this many rows to use them.
constexpr size_t kTaskRows = 128;

GemmSide sideOf(const GemmOperand& operand, bool alongK) {
  return {static_cast<const char*>(operand.data), operand.type == GemmType::bfloat16, alongK,
          operand.leading, operand.batchStride};
}

}  // namespace

GemmPlan::GemmPlan(const Gemm& product) : g(product), isa(gemmIsa()) {
  const bool aAlongK = !g.a.transposed, bAlongK = g.b.transposed;
  // Lanes that lie along k must be transposed; the narrow side is the cheaper one.
  swapped = (bAlongK && g.m <= 2 * kLanes && g.m < g.n) ||
            (!aAlongK && g.n <= 2 * kLanes && g.n < g.m);
  const GemmSide a = sideOf(g.a, aAlongK), b = sideOf(g.b, bAlongK);
  row = swapped ? b : a;
  lane = swapped ? a : b;
  rows = swapped ? g.n : g.m;
  lanes = swapped ? g.m : g.n;
  cRow = swapped ? 1 : g.leadingC;
  cLane = swapped ? g.leadingC : 1;
  directRows = lanes <= kFewLanes && (row.alongK || !row.bf16);
  rowMajor = directRows && row.alongK;
  panelRows = rowMajor ? isa.directRows : isa.packedRows;
  const bool streams = !lane.alongK && rows <= 2 * panelRows;
  directLanes = streams && !lane.bf16;
  // Few rows leave registers for wider tiles, which read longer runs.
  const Range last = rowsOf(rowPanels() - 1);
  width = isa.panelWidth;
  while (directLanes && !rowMajor && width + 1 < kTileWidths &&
         isa.tiles[last.size() - 1].kMajor[width + 1] != nullptr) {
    ++width;
  }
  panelLanes = kLanes << width;
  blockSteps = streams      ? kStreamSteps
               : rowMajor   ? kGemmMostSteps
               : directRows ? kKMajorSteps
                            : kBlockSteps;
  taskLanePanels = streams ? kStreamPanels : kTaskPanels;
  taskRowPanels = directLanes ? 1 : ceilDiv(kTaskRows, panelRows);
}

}  // namespace spillway

#include "gemm.h"

#include <algorithm>

#include "gemm-plan.h"

// How a product runs. Rows are packed once for all threads, a bounded chunk at a time. Then tasks,
// each a range of row panels and a range of lane panels of one batch element, go over k in blocks.
// For each block and lane panel a task packs the panel into its own buffer, which stays in the
// first-level cache, and runs it against all its row panels, whose block stays in the second-level
// one: every lane element is packed once per task, right before use, while tiles fetch the next
// panel. The first tile of float32 lanes packs as it goes. Skinny products do without packing:
// lanes that one or two row panels use, and rows that few lane panels use, are read where they lie.
namespace spillway {
namespace {

// Packed rows of a chunk: 4 MiB in all; at most 72 panels (1008 rows on AVX-512), of which a block
// of k fits a second-level cache of 2 MiB beside a lane panel and C.
constexpr size_t kRowFloats = size_t{1} << 20;
constexpr size_t kChunkPanels = 72;
// Floats of a worker's lane panel, of its tile of C, and of its decoded rows.
constexpr size_t kPanelFloats = 2 * kLanes * kGemmMostSteps;
constexpr size_t kTileFloats = 1024;
constexpr size_t kStagedFloats = kGemmMostDirectRows * kGemmMostSteps;
constexpr size_t kWorkerFloats = kPanelFloats + kTileFloats + kStagedFloats;
// Multiply-adds below which a second thread costs more than it brings.
constexpr size_t kGrain = size_t{1} << 17;
// Tasks per thread, for balance.
constexpr size_t kTasksPerThread = 4;

class Driver {
 public:
  Driver(const Gemm& g, ThreadPool& pool, Scratch& scratch);
  void run();

 private:
  void runChunk(Range batch, Range panels, Range steps);
  void packRows(Range batch, Range panels, Range steps);
  void runTask(size_t batch, Range panels, Range lanes, Range steps, float* worker) const;
  void takeLanes(size_t batch, Range lanes, size_t width, size_t step, GemmTile& tile,
                 float* worker) const;
  void takeRows(size_t batch, size_t panel, Range block, GemmTile& tile, float* staged) const;
  void runPanels(size_t batch, Range panels, Range lanes, size_t width, Range block,
                 GemmTile& tile, float* worker) const;
  GemmAhead lanesAhead(size_t batch, Range panels, size_t panel, Range lanes, Range block) const;
  GemmAhead cAhead(size_t batch, Range panels, size_t panel, Range lanes) const;
  void runTile(size_t batch, Range rows, Range lanes, size_t width, GemmTile& tile, bool last,
               float* temporary) const;
  void finish(float* c, ptrdiff_t step, Range rows, Range lanes) const;

  const GemmPlan plan_;
  const Gemm& g_;
  const GemmIsa& isa_;
  ThreadPool& pool_;
  float* packed_ = nullptr;
  float* workers_ = nullptr;
  Range packedBatch_{0, 0}, packedPanels_{0, 0}, packedSteps_{0, 0};
};

Driver::Driver(const Gemm& g, ThreadPool& pool, Scratch& scratch)
    : plan_(g), g_(g), isa_(plan_.isa), pool_(pool) {
  workers_ = static_cast<float*>(
      scratch.take(sizeof(float) * kWorkerFloats * static_cast<size_t>(pool.size())));
  if (plan_.directRows) return;
  const size_t all = plan_.rowPanels() * kLanes * g.k * g.batch;
  packed_ = static_cast<float*>(scratch.take(sizeof(float) * std::min(all, kRowFloats)));
}

void Driver::run() {
  const size_t panelCount = plan_.rowPanels();
  if (plan_.directRows) return runChunk({0, g_.batch}, {0, panelCount}, {0, g_.k});
  const size_t chunks = ceilDiv(panelCount, kChunkPanels);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const Range panels = partOf(panelCount, chunks, chunk);
    const size_t perStep = panels.size() * kLanes;
    const size_t group = std::max<size_t>(1, kRowFloats / (perStep * g_.k));
    const size_t spans = ceilDiv(g_.k, kRowFloats / perStep);
    for (size_t batch = 0; batch < g_.batch; batch += group) {
      for (size_t span = 0; span < spans; ++span) {
        runChunk({batch, std::min(g_.batch, batch + group)}, panels, partOf(g_.k, spans, span));
      }
    }
  }
}

// Packs the rows of a chunk, then runs its tasks.
void Driver::runChunk(Range batch, Range panels, Range steps) {
  if (!plan_.directRows) packRows(batch, panels, steps);
  const size_t batches = batch.size();
  const size_t rows = plan_.rowsOf(panels.end - 1).end - plan_.rowsOf(panels.begin).begin;
  const size_t work = batches * rows * plan_.lanes * steps.size();
  const size_t threads = static_cast<size_t>(pool_.size());
  const size_t wanted =
      threads == 1 ? 1 : std::min(threads * kTasksPerThread, std::max<size_t>(1, work / kGrain));
  const size_t lanePanels = ceilDiv(plan_.lanes, plan_.panelLanes);
  const size_t laneParts = std::max(ceilDiv(lanePanels, plan_.taskLanePanels),
                                    std::min(lanePanels, ceilDiv(wanted, batches)));
  const size_t rowParts = std::min(std::max<size_t>(1, panels.size() / plan_.taskRowPanels),
                                   ceilDiv(wanted, batches * laneParts));
  const size_t tasks = batches * laneParts * rowParts;
  const size_t grain = std::max<size_t>(1, kGrain / std::max<size_t>(1, work / tasks));
  pool_.parallelFor(tasks, grain, [&](size_t begin, size_t end, int worker) {
    float* own = workers_ + static_cast<size_t>(worker) * kWorkerFloats;
    for (size_t task = begin; task < end; ++task) {
      const size_t element = task / (laneParts * rowParts), rest = task % (laneParts * rowParts);
      const Range some = partOf(panels.size(), rowParts, rest % rowParts);
      const Range part = partOf(lanePanels, laneParts, rest / rowParts);
      const Range lanes{part.begin * plan_.panelLanes,
                        std::min(plan_.lanes, part.end * plan_.panelLanes)};
      runTask(batch.begin + element, {panels.begin + some.begin, panels.begin + some.end}, lanes,
              steps, own);
    }
  });
}

void Driver::packRows(Range batch, Range panels, Range steps) {
  packedBatch_ = batch;
  packedPanels_ = panels;
  packedSteps_ = steps;
  const GemmSide& row = plan_.row;
  const size_t count = panels.size(), k = steps.size();
  const auto pack = row.bf16 ? isa_.packBfloat16 : isa_.packFloat32;
  // Packing an element takes about as long as eight multiply-adds.
  const size_t grain = std::max<size_t>(1, kGrain / (8 * plan_.panelRows * k));
  pool_.parallelFor(batch.size() * count, grain, [&](size_t begin, size_t end) {
    for (size_t unit = begin; unit < end; ++unit) {
      const Range rows = plan_.rowsOf(panels.begin + unit % count);
      pack(packed_ + unit * kLanes * k, kLanes,
           row.at(batch.begin + unit / count, rows.begin, steps.begin), row.leading, row.alongK,
           rows.size(), k);
    }
  });
}

void Driver::runTask(size_t batch, Range panels, Range lanes, Range steps, float* worker) const {
  const size_t blocks = ceilDiv(steps.size(), plan_.blockSteps);
  for (size_t index = 0; index < blocks; ++index) {
    const Range part = partOf(steps.size(), blocks, index);
    const Range block{steps.begin + part.begin, steps.begin + part.end};
    GemmTile tile{};
    tile.k = block.size();
    tile.first = block.begin == 0;
    size_t width = plan_.width;
    for (size_t lane = lanes.begin; lane < lanes.end;) {
      const size_t left = lanes.end - lane;
      // Lanes read in place must be whole vectors; a packed panel may be wider than its lanes.
      while (width > 0 && left < (kLanes << width) &&
             (plan_.directLanes || left <= (kLanes << (width - 1)))) {
        --width;
      }
      const Range some{lane, lane + std::min(left, kLanes << width)};
      takeLanes(batch, some, width, block.begin, tile, worker);
      runPanels(batch, panels, some, width, block, tile, worker + kPanelFloats);
      lane = some.end;
    }
  }
}

// Points the tile at a lane panel: in place, to be copied by the first tile, or packed here.
void Driver::takeLanes(size_t batch, Range lanes, size_t width, size_t step, GemmTile& tile,
                       float* worker) const {
  const GemmSide& lane = plan_.lane;
  const void* source = lane.at(batch, lanes.begin, step);
  const size_t panelLanes = kLanes << width;
  tile.copy = nullptr;
  if (lanes.size() == panelLanes && !lane.alongK && !lane.bf16) {
    tile.lanes = static_cast<const float*>(source);
    tile.laneStep = lane.leading;
    if (!plan_.directLanes) tile.copy = worker;
    return;
  }
  const auto pack = lane.bf16 ? isa_.packBfloat16 : isa_.packFloat32;
  pack(worker, panelLanes, source, lane.leading, lane.alongK, lanes.size(), tile.k);
  tile.lanes = worker;
  tile.laneStep = static_cast<ptrdiff_t>(panelLanes);
}

// Points the tile at a row panel.
void Driver::takeRows(size_t batch, size_t panel, Range block, GemmTile& tile,
                      float* staged) const {
  const GemmSide& row = plan_.row;
  const Range rows = plan_.rowsOf(panel);
  if (!plan_.directRows) {
    const size_t unit =
        (batch - packedBatch_.begin) * packedPanels_.size() + (panel - packedPanels_.begin);
    const size_t step = block.begin - packedSteps_.begin;
    tile.rows = packed_ + (unit * packedSteps_.size() + step) * kLanes;
    tile.rowStep = static_cast<ptrdiff_t>(kLanes);
    return;
  }
  const void* source = row.at(batch, rows.begin, block.begin);
  if (row.bf16) {
    isa_.decodeRows(staged, source, row.leading, rows.size(), tile.k);
    tile.rows = staged;
    tile.rowStep = static_cast<ptrdiff_t>(tile.k);
    return;
  }
  tile.rows = static_cast<const float*>(source);
  tile.rowStep = row.leading;
}

// One lane panel against a task's row panels.
void Driver::runPanels(size_t batch, Range panels, Range lanes, size_t width, Range block,
                       GemmTile& tile, float* worker) const {
  for (size_t panel = panels.begin; panel < panels.end; ++panel) {
    takeRows(batch, panel, block, tile, worker + kTileFloats);
    tile.lanesAhead = lanesAhead(batch, panels, panel, lanes, block);
    tile.cAhead = cAhead(batch, panels, panel, lanes);
    runTile(batch, plan_.rowsOf(panel), lanes, width, tile, block.end == g_.k, worker);
    if (tile.copy == nullptr) continue;
    // The first tile has left its lanes as a panel.
    tile.lanes = tile.copy;
    tile.laneStep = static_cast<ptrdiff_t>(kLanes << width);
    tile.copy = nullptr;
  }
}

// Which part of the next lane panel a tile fetches.
GemmAhead Driver::lanesAhead(size_t batch, Range panels, size_t panel, Range lanes,
                             Range block) const {
  const GemmSide& lane = plan_.lane;
  if (plan_.directLanes || lane.alongK || lanes.end >= plan_.lanes) return {nullptr, 0, 0};
  const Range part = partOf(block.size(), panels.size(), panel - panels.begin);
  return {static_cast<const char*>(lane.at(batch, lanes.end, block.begin + part.begin)),
          lane.leading * lane.elementBytes(), part.size()};
}

// Where the next tile of C lies: below, or at the top of the next lane panel.
GemmAhead Driver::cAhead(size_t batch, Range panels, size_t panel, Range lanes) const {
  const bool below = panel + 1 < panels.end;
  const size_t lane = below ? lanes.begin : lanes.end;
  if (plan_.cLane != 1 || lane >= plan_.lanes) return {nullptr, 0, 0};
  const Range rows = plan_.rowsOf(below ? panel + 1 : panels.begin);
  return {reinterpret_cast<const char*>(plan_.cAt(batch, rows.begin, lane)),
          plan_.cRow * ptrdiff_t{sizeof(float)}, rows.size()};
}

// A tile goes straight to C where C has whole vectors for it, else by way of `temporary`.
void Driver::runTile(size_t batch, Range rows, Range lanes, size_t width, GemmTile& tile, bool last,
                     float* temporary) const {
  const size_t rowCount = rows.size(), laneCount = lanes.size(), panelLanes = kLanes << width;
  const ptrdiff_t cRow = plan_.cRow, cLane = plan_.cLane;
  const GemmTiles& tiles = isa_.tiles[rowCount - 1];
  const auto& kernels = plan_.rowMajor
                            ? (tile.copy == nullptr ? tiles.rowMajor : tiles.rowMajorCopying)
                            : (tile.copy == nullptr ? tiles.kMajor : tiles.kMajorCopying);
  const GemmTileFn fn = kernels[width];
  float* c = plan_.cAt(batch, rows.begin, lanes.begin);
  if (cLane == 1 && laneCount == panelLanes) {
    tile.c = c;
    tile.cStep = cRow;
    fn(tile);
    if (last) finish(c, cRow, rows, lanes);
    return;
  }
  const auto element = [&](size_t r, size_t i) -> float& {
    return c[static_cast<ptrdiff_t>(r) * cRow + static_cast<ptrdiff_t>(i) * cLane];
  };
  tile.c = temporary;
  tile.cStep = static_cast<ptrdiff_t>(panelLanes);
  if (!tile.first) {
    std::fill(temporary, temporary + rowCount * panelLanes, 0.0f);
    for (size_t r = 0; r < rowCount; ++r) {
      for (size_t i = 0; i < laneCount; ++i) temporary[r * panelLanes + i] = element(r, i);
    }
  }
  fn(tile);
  if (last) finish(temporary, tile.cStep, rows, lanes);
  for (size_t i = 0; i < laneCount; ++i) {
    for (size_t r = 0; r < rowCount; ++r) element(r, i) = temporary[r * panelLanes + i];
  }
}

void Driver::finish(float* c, ptrdiff_t step, Range rows, Range lanes) const {
  const bool relu = g_.activation == GemmActivation::relu;
  if (g_.bias == nullptr && !relu) return;
  GemmFinish f{c, step, rows.size(), lanes.size(), nullptr, nullptr, relu};
  if (g_.bias != nullptr && plan_.swapped) f.rowBias = g_.bias + rows.begin;
  if (g_.bias != nullptr && !plan_.swapped) f.laneBias = g_.bias + lanes.begin;
  isa_.finish(f);
}

// Without steps the chain is its start, +0.
void fillEmpty(const Gemm& g) {
  for (size_t batch = 0; batch < g.batch; ++batch) {
    for (size_t i = 0; i < g.m; ++i) {
      float* c = g.c + static_cast<ptrdiff_t>(batch) * g.batchStrideC +
                 static_cast<ptrdiff_t>(i) * g.leadingC;
      for (size_t j = 0; j < g.n; ++j) c[j] = g.bias == nullptr ? 0.0f : 0.0f + g.bias[j];
      if (g.activation == GemmActivation::relu) {
        for (size_t j = 0; j < g.n; ++j) c[j] = c[j] <= 0.0f ? 0.0f : c[j];
      }
    }
  }
}

}  // namespace

void gemm(const Gemm& g, ThreadPool& pool, Scratch& scratch) {
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  if (g.k == 0) return fillEmpty(g);
  Driver(g, pool, scratch).run();
}

// Arguments: a, b, c (byte offsets), m, n, k, batch, then for a and for b: type (GemmType),
// transposed, leading dimension, batch stride; leading dimension and batch stride of c; byte offset
// of the bias or -1; activation (GemmActivation).
SPILLWAY_KERNEL(gemm) {
  const auto operand = [&](size_t data, size_t at) {
    return GemmOperand{call.ptr<void>(data), static_cast<GemmType>(call.i(at)), call.i(at + 1) != 0,
                       static_cast<ptrdiff_t>(call.i(at + 2)),
                       static_cast<ptrdiff_t>(call.i(at + 3))};
  };
  Gemm g{};
  g.m = static_cast<size_t>(call.i(3));
  g.n = static_cast<size_t>(call.i(4));
  g.k = static_cast<size_t>(call.i(5));
  g.batch = static_cast<size_t>(call.i(6));
  g.a = operand(0, 7);
  g.b = operand(1, 11);
  g.c = call.ptr<float>(2);
  g.leadingC = static_cast<ptrdiff_t>(call.i(15));
  g.batchStrideC = static_cast<ptrdiff_t>(call.i(16));
  g.bias = call.i(17) < 0 ? nullptr : call.ptr<float>(17);
  g.activation = static_cast<GemmActivation>(call.i(18));
  gemm(g, call.pool, call.scratchMemory);
}

}  // namespace spillway

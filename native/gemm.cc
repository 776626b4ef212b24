#include "gemm.h"

#include <algorithm>

#include "gemm-isa.h"

// How a product runs. It is first seen as rows × lanes (gemm-isa.h): rows are op(A)'s and lanes
// op(B)'s columns, or the other way round where that spares the larger operand a transposition.
// Rows are packed once for all threads, a bounded chunk at a time. Then tasks, each a range of row
// panels and a range of lane panels of one batch element, go over k in blocks; for each block and
// lane panel a task packs the panel into its own buffer, which stays in the first-level cache, and
// runs it against all its row panels, whose block stays in the second-level one. Every lane element
// is so packed once per task, right before use, while the tiles fetch the next panel.
// Skinny products do without packing: lanes that only one or two row panels use, and rows that only
// one or two lane panels use, are read where they lie.
namespace spillway {
namespace {

// Packed rows of a chunk: 4 MiB in all; at most 1008 of them, so that a block of k fits a
// second-level cache of 2 MiB beside a lane panel and C.
constexpr size_t kRowFloats = size_t{1} << 20;
constexpr size_t kChunkRows = 1008;
// Steps of k per block: a lane panel of 32 then takes 48 KiB.
constexpr size_t kBlockSteps = 384;
// Steps of k per block when rows are read in place: there the row panel is what must be cached.
constexpr size_t kDirectSteps = 1024;
// Steps of k per block when lanes are read in place: that many rows of memory, each read from one end
// of a task to the other, are what the hardware prefetches; C stays in the second-level cache.
constexpr size_t kStreamSteps = 32;
// Floats of a worker's lane panel, of its tile of C, and of its decoded rows.
constexpr size_t kPanelFloats = 2 * kLanes * kDirectSteps;
constexpr size_t kTileFloats = 1024;
constexpr size_t kStagedFloats = 8 * kDirectSteps;
constexpr size_t kWorkerFloats = kPanelFloats + kTileFloats + kStagedFloats;
// At most this many lanes: packing rows would cost a good part of their use.
constexpr size_t kFewLanes = 128;
// Multiply-adds below which a second thread costs more than it brings.
constexpr size_t kGrain = size_t{1} << 17;
// Tasks per thread, for balance.
constexpr size_t kTasksPerThread = 4;
constexpr size_t kMaxTaskPanels = 8;
constexpr size_t kMaxStreamPanels = 128;
// A task that packs lanes has at least this many rows.
constexpr size_t kMinTaskRows = 128;

size_t ceilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

// An operand with its index (row or lane) apart from k.
struct Side {
  const char* data;
  bool bf16;
  // Whether neighbours in memory differ in k.
  bool alongK;
  ptrdiff_t leading, batchStride;

  const void* at(size_t batch, size_t index, size_t k) const {
    const auto i = static_cast<ptrdiff_t>(index), step = static_cast<ptrdiff_t>(k);
    const ptrdiff_t element = static_cast<ptrdiff_t>(batch) * batchStride +
                              (alongK ? i * leading + step : step * leading + i);
    return data + element * (bf16 ? 2 : 4);
  }
};

Side sideOf(const GemmOperand& operand, bool alongK) {
  return {static_cast<const char*>(operand.data), operand.type == GemmType::bfloat16, alongK,
          operand.leading, operand.batchStride};
}

struct Range {
  size_t begin, end;
};

// Part `index` of [0, count) in `parts` nearly equal parts.
Range partOf(size_t count, size_t parts, size_t index) {
  return {index * count / parts, (index + 1) * count / parts};
}

class Driver {
 public:
  Driver(const Gemm& g, ThreadPool& pool, Scratch& scratch);
  void run();

 private:
  void runChunk(Range batch, Range panels, Range steps);
  void packRows(Range batch, Range panels, Range steps);
  void runTask(size_t batch, Range panels, Range lanes, Range steps, float* worker) const;
  void runPanels(size_t batch, Range panels, Range lanes, size_t width, Range block,
                 GemmTile& tile, float* worker) const;
  GemmAhead lanesAhead(size_t batch, Range panels, size_t panel, Range lanes, Range block) const;
  void runTile(size_t batch, Range rows, Range lanes, size_t width, GemmTile& tile, bool last,
               float* temporary) const;
  void finish(float* c, ptrdiff_t step, Range rows, Range lanes) const;

  size_t rowPanels() const { return ceilDiv(rows_, panelRows_); }
  Range rowsOf(size_t panel) const { return partOf(rows_, rowPanels(), panel); }
  float* cAt(size_t batch, size_t row, size_t lane) const {
    return g_.c + static_cast<ptrdiff_t>(batch) * g_.batchStrideC +
           static_cast<ptrdiff_t>(row) * cRow_ + static_cast<ptrdiff_t>(lane) * cLane_;
  }

  const Gemm& g_;
  ThreadPool& pool_;
  const GemmIsa& isa_;
  bool swapped_;
  size_t rows_, lanes_;
  Side row_, lane_;
  ptrdiff_t cRow_, cLane_;
  bool directRows_, rowMajor_, directLanes_;
  // Most rows of a panel, most vectors (as an index) and lanes of a lane panel.
  size_t panelRows_, width_, panelLanes_;
  float* packed_ = nullptr;
  float* workers_ = nullptr;
  Range packedBatch_{0, 0}, packedPanels_{0, 0}, packedSteps_{0, 0};
};

Driver::Driver(const Gemm& g, ThreadPool& pool, Scratch& scratch)
    : g_(g), pool_(pool), isa_(gemmIsa()) {
  const bool aAlongK = !g.a.transposed, bAlongK = g.b.transposed;
  // Lanes must be transposed when they lie along k; a narrow side is the cheaper one.
  swapped_ = (bAlongK && g.m <= 2 * kLanes && g.m < g.n) ||
             (!aAlongK && g.n <= 2 * kLanes && g.n < g.m);
  const Side a = sideOf(g.a, aAlongK), b = sideOf(g.b, bAlongK);
  row_ = swapped_ ? b : a;
  lane_ = swapped_ ? a : b;
  rows_ = swapped_ ? g.n : g.m;
  lanes_ = swapped_ ? g.m : g.n;
  cRow_ = swapped_ ? 1 : g.leadingC;
  cLane_ = swapped_ ? g.leadingC : 1;
  directRows_ = lanes_ <= kFewLanes && (row_.alongK || !row_.bf16);
  rowMajor_ = directRows_ && row_.alongK;
  panelRows_ = rowMajor_ ? isa_.directRows : isa_.packedRows;
  directLanes_ = !lane_.alongK && !lane_.bf16 && rows_ <= 2 * panelRows_;
  // Few rows leave registers for wider tiles, which read longer runs.
  const size_t most = rowsOf(rowPanels() - 1).end - rowsOf(rowPanels() - 1).begin;
  width_ = isa_.panelWidth;
  while (directLanes_ && !rowMajor_ && width_ + 1 < kTileWidths &&
         isa_.tiles[most - 1].kMajor[width_ + 1] != nullptr) {
    ++width_;
  }
  panelLanes_ = kLanes << width_;
  workers_ = static_cast<float*>(
      scratch.take(sizeof(float) * kWorkerFloats * static_cast<size_t>(pool.size())));
  if (!directRows_) {
    const size_t all = rowPanels() * kLanes * g.k * g.batch;
    const size_t least = std::min(rowPanels(), ceilDiv(kChunkRows, panelRows_)) * kLanes;
    packed_ = static_cast<float*>(
        scratch.take(sizeof(float) * std::min(all, std::max(kRowFloats, least))));
  }
}

void Driver::run() {
  const Range everyBatch{0, g_.batch};
  if (directRows_) return runChunk(everyBatch, {0, rowPanels()}, {0, g_.k});
  const size_t chunks = ceilDiv(rows_, kChunkRows);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const Range panels = partOf(rowPanels(), chunks, chunk);
    const size_t perStep = (panels.end - panels.begin) * kLanes;
    const size_t group = std::max<size_t>(1, kRowFloats / (perStep * g_.k));
    const size_t most = std::max<size_t>(1, kRowFloats / perStep);
    const size_t spans = ceilDiv(g_.k, most);
    for (size_t batch = 0; batch < g_.batch; batch += group) {
      for (size_t span = 0; span < spans; ++span) {
        runChunk({batch, std::min(g_.batch, batch + group)}, panels, partOf(g_.k, spans, span));
      }
    }
  }
}

// Packs the rows of a chunk, then runs its tasks.
void Driver::runChunk(Range batch, Range panels, Range steps) {
  if (!directRows_) packRows(batch, panels, steps);
  const size_t batches = batch.end - batch.begin, panelCount = panels.end - panels.begin;
  const size_t rows = rowsOf(panels.end - 1).end - rowsOf(panels.begin).begin;
  const size_t k = steps.end - steps.begin;
  const size_t work = batches * rows * lanes_ * k;
  const size_t threads = static_cast<size_t>(pool_.size());
  const size_t wanted =
      threads == 1 ? 1 : std::min(threads * kTasksPerThread, std::max<size_t>(1, work / kGrain));
  const size_t lanePanels = ceilDiv(lanes_, panelLanes_);
  const size_t mostPanels = directLanes_ ? kMaxStreamPanels : kMaxTaskPanels;
  const size_t laneParts = std::max(ceilDiv(lanePanels, mostPanels),
                                    std::min(lanePanels, ceilDiv(wanted, batches)));
  const size_t leastPanels = directLanes_ ? 1 : ceilDiv(kMinTaskRows, panelRows_);
  const size_t rowParts = std::min(std::max<size_t>(1, panelCount / leastPanels),
                                   ceilDiv(wanted, batches * laneParts));
  const size_t tasks = batches * laneParts * rowParts;
  const size_t grain = std::max<size_t>(1, kGrain / std::max<size_t>(1, work / tasks));
  pool_.parallelFor(tasks, grain, [&](size_t begin, size_t end, int worker) {
    float* own = workers_ + static_cast<size_t>(worker) * kWorkerFloats;
    for (size_t task = begin; task < end; ++task) {
      const size_t element = task / (laneParts * rowParts), rest = task % (laneParts * rowParts);
      const Range some = partOf(panelCount, rowParts, rest % rowParts);
      const Range lanes = partOf(lanePanels, laneParts, rest / rowParts);
      runTask(batch.begin + element, {panels.begin + some.begin, panels.begin + some.end},
              {lanes.begin * panelLanes_, std::min(lanes_, lanes.end * panelLanes_)}, steps, own);
    }
  });
}

void Driver::packRows(Range batch, Range panels, Range steps) {
  packedBatch_ = batch;
  packedPanels_ = panels;
  packedSteps_ = steps;
  const size_t panelCount = panels.end - panels.begin, k = steps.end - steps.begin;
  const size_t each = std::max<size_t>(1, panelRows_ * k);
  const auto pack = row_.bf16 ? isa_.packBfloat16 : isa_.packFloat32;
  pool_.parallelFor((batch.end - batch.begin) * panelCount, std::max<size_t>(1, kGrain / 8 / each),
                    [&](size_t begin, size_t end) {
                      for (size_t unit = begin; unit < end; ++unit) {
                        const Range rows = rowsOf(panels.begin + unit % panelCount);
                        pack(packed_ + unit * kLanes * k, kLanes,
                             row_.at(batch.begin + unit / panelCount, rows.begin, steps.begin),
                             row_.leading, row_.alongK, rows.end - rows.begin, k);
                      }
                    });
}

void Driver::runTask(size_t batch, Range panels, Range lanes, Range steps, float* worker) const {
  const size_t k = steps.end - steps.begin;
  const size_t most = directLanes_ ? kStreamSteps : directRows_ ? kDirectSteps : kBlockSteps;
  const size_t blocks = ceilDiv(k, most);
  for (size_t index = 0; index < blocks; ++index) {
    const Range part = partOf(k, blocks, index);
    const Range block{steps.begin + part.begin, steps.begin + part.end};
    GemmTile tile{};
    tile.k = block.end - block.begin;
    tile.first = block.begin == 0;
    size_t width = width_;
    for (size_t lane = lanes.begin; lane < lanes.end;) {
      const size_t left = lanes.end - lane;
      // Lanes read in place must be whole vectors; a packed panel may be wider than its lanes.
      while (width > 0 && left < (kLanes << width) &&
             (directLanes_ || left <= (kLanes << (width - 1)))) {
        --width;
      }
      const size_t count = std::min(left, kLanes << width);
      const bool whole = count == kLanes << width;
      tile.copy = nullptr;
      if (whole && !lane_.alongK && !lane_.bf16) {
        tile.lanes = static_cast<const float*>(lane_.at(batch, lane, block.begin));
        tile.laneStep = lane_.leading;
        if (!directLanes_) tile.copy = worker;
      } else {
        const auto pack = lane_.bf16 ? isa_.packBfloat16 : isa_.packFloat32;
        pack(worker, kLanes << width, lane_.at(batch, lane, block.begin), lane_.leading,
             lane_.alongK, count, tile.k);
        tile.lanes = worker;
        tile.laneStep = static_cast<ptrdiff_t>(kLanes << width);
      }
      runPanels(batch, panels, {lane, lane + count}, width, block, tile, worker + kPanelFloats);
      lane += count;
    }
  }
}

// One lane panel against a task's row panels.
void Driver::runPanels(size_t batch, Range panels, Range lanes, size_t width, Range block,
                       GemmTile& tile, float* worker) const {
  const bool last = block.end == g_.k;
  float* staged = worker + kTileFloats;
  for (size_t panel = panels.begin; panel < panels.end; ++panel) {
    const Range rows = rowsOf(panel);
    if (!directRows_) {
      const size_t unit = (batch - packedBatch_.begin) * (packedPanels_.end - packedPanels_.begin) +
                          (panel - packedPanels_.begin);
      tile.rows = packed_ + unit * kLanes * (packedSteps_.end - packedSteps_.begin) +
                  (block.begin - packedSteps_.begin) * kLanes;
      tile.rowStep = static_cast<ptrdiff_t>(kLanes);
    } else if (rowMajor_ && row_.bf16) {
      isa_.decodeRows(staged, row_.at(batch, rows.begin, block.begin), row_.leading,
                      rows.end - rows.begin, tile.k);
      tile.rows = staged;
      tile.rowStep = static_cast<ptrdiff_t>(tile.k);
    } else {
      tile.rows = static_cast<const float*>(row_.at(batch, rows.begin, block.begin));
      tile.rowStep = row_.leading;
    }
    tile.lanesAhead = lanesAhead(batch, panels, panel, lanes, block);
    tile.cAhead = {nullptr, 0, 0};
    if (cLane_ == 1) {
      const size_t next = panel + 1 < panels.end ? panel + 1 : panels.begin;
      const size_t lane = panel + 1 < panels.end ? lanes.begin : lanes.end;
      const Range ahead = rowsOf(next);
      if (lane < lanes_) {
        tile.cAhead = {reinterpret_cast<const char*>(cAt(batch, ahead.begin, lane)),
                       cRow_ * ptrdiff_t{sizeof(float)}, ahead.end - ahead.begin};
      }
    }
    runTile(batch, rows, lanes, width, tile, last, worker);
    // The first tile has left its lanes as a panel.
    if (tile.copy != nullptr) {
      tile.lanes = tile.copy;
      tile.laneStep = static_cast<ptrdiff_t>(kLanes << width);
      tile.copy = nullptr;
    }
  }
}

// Which part of the next lane panel a tile fetches.
GemmAhead Driver::lanesAhead(size_t batch, Range panels, size_t panel, Range lanes,
                             Range block) const {
  if (directLanes_ || lane_.alongK || lanes.end >= lanes_) return {nullptr, 0, 0};
  const size_t index = panel - panels.begin, count = panels.end - panels.begin;
  const Range part = partOf(block.end - block.begin, count, index);
  return {static_cast<const char*>(lane_.at(batch, lanes.end, block.begin + part.begin)),
          lane_.leading * (lane_.bf16 ? 2 : 4), part.end - part.begin};
}

// A tile goes straight to C where C has whole vectors for it, else by way of `temporary`.
void Driver::runTile(size_t batch, Range rows, Range lanes, size_t width, GemmTile& tile, bool last,
                     float* temporary) const {
  const size_t rowCount = rows.end - rows.begin, laneCount = lanes.end - lanes.begin;
  const GemmTiles& tiles = isa_.tiles[rowCount - 1];
  const auto& kernels = rowMajor_ ? (tile.copy == nullptr ? tiles.rowMajor : tiles.rowMajorCopying)
                                  : (tile.copy == nullptr ? tiles.kMajor : tiles.kMajorCopying);
  const GemmTileFn fn = kernels[width];
  float* c = cAt(batch, rows.begin, lanes.begin);
  if (cLane_ == 1 && laneCount == kLanes << width) {
    tile.c = c;
    tile.cStep = cRow_;
    fn(tile);
    if (last) finish(c, cRow_, rows, lanes);
    return;
  }
  const auto step = static_cast<ptrdiff_t>(kLanes << width);
  tile.c = temporary;
  tile.cStep = step;
  if (!tile.first) {
    std::fill(temporary, temporary + rowCount * (kLanes << width), 0.0f);
    for (size_t r = 0; r < rowCount; ++r) {
      for (size_t i = 0; i < laneCount; ++i) {
        temporary[r * (kLanes << width) + i] =
            c[static_cast<ptrdiff_t>(r) * cRow_ + static_cast<ptrdiff_t>(i) * cLane_];
      }
    }
  }
  fn(tile);
  if (last) finish(temporary, step, rows, lanes);
  for (size_t i = 0; i < laneCount; ++i) {
    for (size_t r = 0; r < rowCount; ++r) {
      c[static_cast<ptrdiff_t>(r) * cRow_ + static_cast<ptrdiff_t>(i) * cLane_] =
          temporary[r * (kLanes << width) + i];
    }
  }
}

void Driver::finish(float* c, ptrdiff_t step, Range rows, Range lanes) const {
  const bool relu = g_.activation == GemmActivation::relu;
  if (g_.bias == nullptr && !relu) return;
  GemmFinish f{c, step, rows.end - rows.begin, lanes.end - lanes.begin, nullptr, nullptr, relu};
  if (g_.bias != nullptr && swapped_) f.rowBias = g_.bias + rows.begin;
  if (g_.bias != nullptr && !swapped_) f.laneBias = g_.bias + lanes.begin;
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

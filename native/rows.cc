// Rows by index: GatherV2, UnsortedSegmentSum, OneHot; and Range.
#define SPILLWAY_BODY_FILE "rows-body.h"
#include "simd-targets.h"

#include "script-number.h"

namespace spillway {
namespace {

constexpr size_t kGrainElements = 16384;

void sumRows(const float* x, const int32_t* order, size_t count, size_t columns, float* out) {
  SPILLWAY_DISPATCH(sumRows, (x, order, count, columns, out));
}
void sumRows(const int32_t* x, const int32_t* order, size_t count, size_t columns, int32_t* out) {
  for (size_t c = 0; c < columns; ++c) {
    uint32_t sum = 0;
    for (size_t k = 0; k < count; ++k) {
      sum += static_cast<uint32_t>(x[static_cast<size_t>(order[k]) * columns + c]);
    }
    out[c] = static_cast<int32_t>(sum);
  }
}

// args [x, ids, out, rows, columns, segments]: row i of x is added to row ids[i] of out, rows
// ascending; ids outside [0, segments) are left out, as tfjs does. A counting sort by id first, so
// that each output row is one thread's and is written once.
template <class T>
void segmentSum(KernelCall& call) {
  const T* x = call.ptr<T>(0);
  const int32_t* ids = call.ptr<int32_t>(1);
  T* out = call.ptr<T>(2);
  const size_t rows = static_cast<size_t>(call.i(3));
  const size_t columns = static_cast<size_t>(call.i(4));
  const size_t segments = static_cast<size_t>(call.i(5));
  int32_t* ends = reinterpret_cast<int32_t*>(call.scratch(segments + 1));
  int32_t* order = reinterpret_cast<int32_t*>(call.scratch(rows));
  const auto known = [&](size_t i) {
    return ids[i] >= 0 && static_cast<size_t>(ids[i]) < segments;
  };
  for (size_t s = 0; s <= segments; ++s) ends[s] = 0;
  for (size_t i = 0; i < rows; ++i) {
    if (known(i)) ++ends[ids[i] + 1];
  }
  for (size_t s = 0; s < segments; ++s) ends[s + 1] += ends[s];
  // Placing a row moves its segment's start up to its end.
  for (size_t i = 0; i < rows; ++i) {
    if (known(i)) order[ends[ids[i]]++] = static_cast<int32_t>(i);
  }
  const size_t grain = 1 + kGrainElements / (columns == 0 ? 1 : columns);
  call.pool.parallelFor(segments, grain, [&](size_t begin, size_t end) {
    for (size_t s = begin; s < end; ++s) {
      const int32_t first = s == 0 ? 0 : ends[s - 1];
      const size_t count = static_cast<size_t>(ends[s] - first);
      T* row = out + s * columns;
      if (count == 0) {
        std::memset(row, 0, columns * sizeof(T));
      } else {
        sumRows(x, order + first, count, columns, row);
      }
    }
  });
}

}  // namespace

SPILLWAY_KERNEL(segmentSumFloat) { segmentSum<float>(call); }
SPILLWAY_KERNEL(segmentSumInt) { segmentSum<int32_t>(call); }

// args [x, indices, out, batch, outer, indexCount, dim, sliceBytes, fill byte]: out[b, o, i] =
// x[b, o, indices[b, i]]. A row whose index lies outside [0, dim) is filled with the byte: 255, which
// makes float32 NaN, or 0.
SPILLWAY_KERNEL(gatherRows) {
  const char* x = call.ptr<char>(0);
  const int32_t* indices = call.ptr<int32_t>(1);
  char* out = call.ptr<char>(2);
  const size_t batch = static_cast<size_t>(call.i(3)), outer = static_cast<size_t>(call.i(4));
  const size_t count = static_cast<size_t>(call.i(5)), dim = static_cast<size_t>(call.i(6));
  const size_t bytes = static_cast<size_t>(call.i(7));
  const int fill = static_cast<int>(call.i(8));
  const size_t grain = 1 + 4 * kGrainElements / (bytes == 0 ? 1 : bytes);
  call.pool.parallelFor(batch * outer * count, grain, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      const size_t plane = r / count;
      const int32_t index = indices[plane / outer * count + r % count];
      if (index < 0 || static_cast<size_t>(index) >= dim) {
        std::memset(out + r * bytes, fill, bytes);
      } else {
        std::memcpy(out + r * bytes, x + (plane * dim + static_cast<size_t>(index)) * bytes, bytes);
      }
    }
  });
}

namespace {

// args [indices, out, count, depth, onValue, offValue].
template <class T>
void oneHot(KernelCall& call) {
  const int32_t* indices = call.ptr<int32_t>(0);
  T* out = call.ptr<T>(1);
  const size_t depth = static_cast<size_t>(call.i(3));
  // As tfjs does, by way of float32.
  T on, off;
  assignScript(&on, static_cast<double>(call.f(4)));
  assignScript(&off, static_cast<double>(call.f(5)));
  const size_t grain = 1 + kGrainElements / (depth == 0 ? 1 : depth);
  call.pool.parallelFor(static_cast<size_t>(call.i(2)), grain, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      T* row = out + i * depth;
      for (size_t k = 0; k < depth; ++k) row[k] = off;
      if (indices[i] >= 0 && static_cast<size_t>(indices[i]) < depth) row[indices[i]] = on;
    }
  });
}

// args [out, count, start, step]; each element is the one before plus step, rounded to its type.
template <class T>
void range(KernelCall& call) {
  T* out = call.ptr<T>(0);
  const size_t count = static_cast<size_t>(call.i(1));
  if (count == 0) return;
  assignScript(out, call.d(2));
  for (size_t i = 1; i < count; ++i) {
    assignScript(out + i, static_cast<double>(out[i - 1]) + call.d(3));
  }
}

}  // namespace

SPILLWAY_KERNEL(oneHotFloat) { oneHot<float>(call); }
SPILLWAY_KERNEL(oneHotInt) { oneHot<int32_t>(call); }
SPILLWAY_KERNEL(oneHotBool) { oneHot<uint8_t>(call); }
SPILLWAY_KERNEL(rangeFloat) { range<float>(call); }
SPILLWAY_KERNEL(rangeInt) { range<int32_t>(call); }
SPILLWAY_KERNEL(rangeBool) { range<uint8_t>(call); }

}  // namespace spillway

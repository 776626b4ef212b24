// Sums of rows by segment. See rows.cc.
#include "simd.h"
#include "simd-access.h"

namespace spillway {
namespace SPILLWAY_SIMD {

// out[0..columns) = the rows x[order[0]], x[order[1]], … added in this order, in double.
void sumRows(const float* x, const int32_t* order, size_t count, size_t columns, float* out) {
  forLanes(0, columns, [&](size_t c, size_t n) {
    D16 sum = splatD(0.0);
    for (size_t k = 0; k < count; ++k) {
      sum = sum + widen(get(x + size_t(order[k]) * columns + c, n));
    }
    put(out + c, narrow(sum), n);
  });
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

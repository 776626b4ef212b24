// Widening: a float32 copy of a tensor that is kept as bfloat16, for kernels that do not read it.
#include "casts.h"
#include "kernel.h"

namespace spillway {

// widenBfloat16(out, source, length)
SPILLWAY_KERNEL(widenBfloat16) {
  auto* out = call.ptr<uint32_t>(0);
  const auto* source = call.ptr<const uint16_t>(1);
  call.pool.parallelFor(static_cast<size_t>(call.i(2)), 1 << 15, [=](size_t begin, size_t end) {
    bf16ToF32(source + begin, out + begin, end - begin);
  });
}

}  // namespace spillway

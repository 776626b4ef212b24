// Body file of fused-rotary.cc, once per instruction set.
#include "simd.h"

namespace spillway {
namespace SPILLWAY_SIMD {

static void rotary(KernelCall& call) {
  const float* x = call.ptr<float>(0);
  const float* table = call.ptr<float>(1);
  float* y = call.ptr<float>(2);
  const size_t rows = size_t(call.i(3)), half = size_t(call.i(4)) / 2;
  const size_t perPosition = size_t(call.i(5)), length = size_t(call.i(6));
  const F16 sign = splat(call.f(7));
  const size_t grain = 1 + kGrain / (2 * half);
  call.pool.parallelFor(rows, grain, [=](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const size_t position = row / perPosition % length;
      const float* cosines = table + position * half;
      const float* sines = cosines + length * half;
      const float* source = x + row * 2 * half;
      float* target = y + row * 2 * half;
      for (size_t i = 0; i < half; i += 16) {
        const size_t lanes = half - i < 16 ? half - i : 16;
        const F16 a = loadPart(source + i, lanes), b = loadPart(source + half + i, lanes);
        const F16 cosine = loadPart(cosines + i, lanes);
        const F16 sine = sign * loadPart(sines + i, lanes);
        storePart(target + i, fnma(b, sine, a * cosine), lanes);
        storePart(target + half + i, fma(a, sine, b * cosine), lanes);
      }
    }
  });
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

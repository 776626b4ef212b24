// Body file of fused-activation.cc, once per instruction set.
#include "simd.h"
#include "fused-exp.h"

namespace spillway {
namespace SPILLWAY_SIMD {

// σ(2u) with u = √(2/π)·(x + 0.044715·x³), so that (1 + tanh(u))/2 = σ(2u).
SPILLWAY_BODY F16 geluGate(F16 x, F16 square) {
  const F16 bracket = fma(square, splat(kGeluCubic * kGeluScale), splat(kGeluScale));
  return sigmoidFast(splat(2) * (x * bracket));
}

static void geluNew(KernelCall& call) {
  const float* x = call.ptr<float>(0);
  float* y = call.ptr<float>(1);
  call.pool.parallelFor(size_t(call.i(2)), kGrain, [=](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += 16) {
      const size_t lanes = end - i < 16 ? end - i : 16;
      const F16 value = loadPart(x + i, lanes);
      storePart(y + i, value * geluGate(value, value * value), lanes);
    }
  });
}

// s = σ(2u): dy/dx = s + x·2s(1 - s)·u'
static void geluNewGrad(KernelCall& call) {
  const float* dy = call.ptr<float>(0);
  const float* x = call.ptr<float>(1);
  float* dx = call.ptr<float>(2);
  call.pool.parallelFor(size_t(call.i(3)), kGrain, [=](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += 16) {
      const size_t lanes = end - i < 16 ? end - i : 16;
      const F16 value = loadPart(x + i, lanes), square = value * value;
      const F16 gate = geluGate(value, square);
      const F16 inner = fma(square, splat(3 * kGeluCubic * kGeluScale), splat(kGeluScale));
      const F16 twice = splat(2) * (gate * (splat(1) - gate));
      const F16 slope = fma(value * inner, twice, gate);
      storePart(dx + i, loadPart(dy + i, lanes) * slope, lanes);
    }
  });
}

static void swiglu(KernelCall& call) {
  const float* gate = call.ptr<float>(0);
  const float* up = call.ptr<float>(1);
  float* y = call.ptr<float>(2);
  call.pool.parallelFor(size_t(call.i(3)), kGrain, [=](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += 16) {
      const size_t lanes = end - i < 16 ? end - i : 16;
      const F16 g = loadPart(gate + i, lanes);
      storePart(y + i, g * sigmoidFast(g) * loadPart(up + i, lanes), lanes);
    }
  });
}

static void swigluGrad(KernelCall& call) {
  const float* dy = call.ptr<float>(0);
  const float* gate = call.ptr<float>(1);
  const float* up = call.ptr<float>(2);
  float* dGate = call.ptr<float>(3);
  float* dUp = call.ptr<float>(4);
  call.pool.parallelFor(size_t(call.i(5)), kGrain, [=](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += 16) {
      const size_t lanes = end - i < 16 ? end - i : 16;
      const F16 g = loadPart(gate + i, lanes), slope = loadPart(dy + i, lanes);
      const F16 sigma = sigmoidFast(g);
      storePart(dUp + i, slope * (g * sigma), lanes);
      const F16 silu = sigma * fma(g, splat(1) - sigma, splat(1));
      storePart(dGate + i, slope * (loadPart(up + i, lanes) * silu), lanes);
    }
  });
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

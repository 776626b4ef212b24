// gelu_new and SwiGLU, element by element, forward and backward. Both are sigmoids:
// gelu_new(x) = x·σ(2u), u = √(2/π)·(x + 0.044715·x³), without the cancellation in 1 + tanh(u);
// SwiGLU = gate·σ(gate)·up.
#include "kernel.h"

namespace spillway {
namespace {

constexpr float kGeluScale = 0.79788456080286536f;  // √(2/π)
constexpr float kGeluCubic = 0.044715f;

// Elements below which a second thread costs more than it saves.
constexpr size_t kGrain = 1 << 13;

}  // namespace
}  // namespace spillway

#define SPILLWAY_BODY_FILE "fused-activation-body.h"
#include "simd-targets.h"

namespace spillway {

// geluNew(x, y, length)
SPILLWAY_KERNEL_PER_ISA(geluNew)
// geluNewGrad(dy, x, dx, length)
SPILLWAY_KERNEL_PER_ISA(geluNewGrad)
// swiglu(gate, up, y, length)
SPILLWAY_KERNEL_PER_ISA(swiglu)
// swigluGrad(dy, gate, up, dGate, dUp, length)
SPILLWAY_KERNEL_PER_ISA(swigluGrad)

}  // namespace spillway

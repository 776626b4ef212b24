// Fill: every element of a tensor becomes one value.
#include "kernel.h"

namespace spillway {
namespace {

// Elements below which a second thread costs more than it saves.
constexpr size_t kGrain = 1 << 15;

template <class T>
void fill(KernelCall& call, T value) {
  T* out = call.ptr<T>(0);
  call.pool.parallelFor(static_cast<size_t>(call.i(1)), kGrain, [=](size_t begin, size_t end) {
    for (size_t index = begin; index < end; ++index) out[index] = value;
  });
}

}  // namespace

// fillFloat(out, length, value)
SPILLWAY_KERNEL(fillFloat) { fill<float>(call, call.f(2)); }

// fillInt(out, length, value)
SPILLWAY_KERNEL(fillInt) { fill<int32_t>(call, static_cast<int32_t>(call.i(2))); }

// fillBool(out, length, value)
SPILLWAY_KERNEL(fillBool) { fill<uint8_t>(call, static_cast<uint8_t>(call.i(2))); }

}  // namespace spillway

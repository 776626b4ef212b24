// What a kernel of the native device is: a function over a call's numbers and the memory behind
// them.
//
// A call is a kernel id and an array of doubles: byte offsets of tensors, dimensions, flags,
// factors (all exact in a double). A kernel allocates no tensor, throws nothing and validates
// nothing; TypeScript did. Its result depends on its arguments alone: not on the number of threads,
// nor on the instruction set.
//
// Ownership: a call borrows everything that it points to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "thread-pool.h"

namespace spillway {

// Memory for a kernel's packed operands and partial sums. It grows to what one call needs and is
// used again by the next. Not thread-safe: ask for it outside parallelFor, and cut it by worker.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // 64-byte aligned, of undefined content, valid until `reset`.
  void* take(size_t bytes);
  // Ends the call: everything taken is free again, in one block.
  void reset();

 private:
  struct Block {
    char* data;
    size_t size;
  };
  std::vector<Block> blocks_;
  size_t used_ = 0;
};

struct KernelCall {
  const double* args;
  size_t argCount;
  // Added to every offset; null where offsets are addresses.
  char* base;
  ThreadPool& pool;
  Scratch& scratchMemory;

  template <class T>
  T* ptr(size_t index) const {
    return reinterpret_cast<T*>(base + static_cast<size_t>(args[index]));
  }
  int64_t i(size_t index) const { return static_cast<int64_t>(args[index]); }
  float f(size_t index) const { return static_cast<float>(args[index]); }
  double d(size_t index) const { return args[index]; }

  // `floats` floats of undefined content until the kernel returns, 64-byte aligned. May be called
  // more than once per call, never inside parallelFor.
  float* scratch(size_t floats) const {
    return static_cast<float*>(scratchMemory.take(floats * sizeof(float)));
  }
};

using KernelFn = void (*)(KernelCall&);

// Makes `fn` known as `name`; duplicate names end the process at load time.
void registerKernel(const char* name, KernelFn fn);

struct KernelRegistrar {
  KernelRegistrar(const char* name, KernelFn fn) { registerKernel(name, fn); }
};

}  // namespace spillway

// Defines and registers a kernel: SPILLWAY_KERNEL(addFloat) { … uses `call` … }
#define SPILLWAY_KERNEL(name)                                                            \
  static void name##Kernel(::spillway::KernelCall& call);                                \
  static const ::spillway::KernelRegistrar name##Registrar{#name, name##Kernel};         \
  static void name##Kernel([[maybe_unused]] ::spillway::KernelCall& call)

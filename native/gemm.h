// Matrix products of float32 and bf16 operands: C = op(A)·op(B), batched.
//
// Every c_ij is one chain of fused multiply-adds over ascending k that starts at +0:
//   c = 0;  for k: c = fma(a_ik, b_kj, c);  c = c + bias_j;  c = activation(c)
// Blocks of k store and reload the partial sum, which is float32 anyway. Hence the bits depend
// neither on the instruction set, nor on the number of threads, nor on how m, n and the batch are
// divided. Denormals are kept. Which of several NaN comes out is not defined.
//
// All matrices are row-major with leading dimensions; C overlaps neither operand. Nothing outside
// the operands is read, nothing outside C is written. Ownership: borrows all memory.
#pragma once

#include <cstddef>

#include "kernel.h"

namespace spillway {

enum class GemmType : int { float32 = 0, bfloat16 = 1 };
enum class GemmActivation : int { none = 0, relu = 1 };

struct GemmOperand {
  const void* data;
  GemmType type;
  // Whether the matrix is stored as its transpose.
  bool transposed;
  // In elements. A batch stride of 0 shares one matrix among the batch.
  ptrdiff_t leading;
  ptrdiff_t batchStride;
};

struct Gemm {
  size_t m, n, k, batch;
  // op(A) is m × k, op(B) is k × n, C is m × n.
  GemmOperand a, b;
  float* c;
  ptrdiff_t leadingC, batchStrideC;
  // n floats added to every row, or null.
  const float* bias;
  GemmActivation activation;
};

// Runs the product on the pool; scratch memory is bounded whatever the sizes (about 4 MiB and
// 192 KiB per thread). No result depends on either.
void gemm(const Gemm& product, ThreadPool& pool, Scratch& scratch);

}  // namespace spillway

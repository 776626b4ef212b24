// The loop of an elementwise kernel of two operands over rows of the output.
//
// args [a, b, out, rank, dims × rank, strides of a × rank, strides of b × rank]: rank 1 to 6, strides
// in elements, the last stride of each 0 or 1 and not both 0. TypeScript merges dimensions, so that
// equal shapes are one dimension and [N, C] with [C] or [N, 1] are two.
#pragma once

#include "kernel.h"

namespace spillway {

// `count` elements of the last dimension.
using BinaryRow = void (*)(const void* a, const void* b, void* out, size_t count);

// By which operands move along the last dimension; the other one is a single element.
struct BinaryRowsOf {
  BinaryRow both;
  BinaryRow aMoves;
  BinaryRow bMoves;
};

// Runs the kernel on the pool's threads; sizes of elements in bytes.
void runRows(KernelCall& call, size_t inBytes, size_t outBytes, const BinaryRowsOf& rows);

}  // namespace spillway

// Rotary position embedding: pairs (i, i + D/2) of each head turned by their position's angles.
#include "kernel.h"

namespace spillway {
namespace {

// Elements below which a second thread costs more than it saves.
constexpr size_t kGrain = 1 << 14;

}  // namespace
}  // namespace spillway

#define SPILLWAY_BODY_FILE "fused-rotary-body.h"
#include "simd-targets.h"

namespace spillway {

// rotary(x [rows, D], table [2, T, D/2] of cosines and sines, y, rows, D, rows per position, T,
// direction: 1 or -1). Row r has position floor(r / rows per position) mod T. y may be x.
SPILLWAY_KERNEL_PER_ISA(rotary)

}  // namespace spillway

// Includes one body file once per instruction set, each time in its own namespace.
//
//   #define SPILLWAY_BODY_FILE "softmax-body.h"
//   #include "simd-targets.h"          // defines spillway::avx512::…, avx2::…, portable::…
//   SPILLWAY_KERNEL_PER_ISA(softmax)   // registers softmax(KernelCall&) of the set in use
//
// A body file has no include guard, includes "simd.h" (and "simd-math.h"), and opens
// `namespace spillway { namespace SPILLWAY_SIMD {`. It uses only what those two headers, kernel.h
// and the C headers offer: whatever else it needs must be included before simd-targets.h, because
// everything that is parsed inside a region belongs to that region's instruction set, and an inline
// function of the standard library must not.
//
// Regions rather than one source per flag set: with `-mavx512f` on a whole file the linker may keep
// that file's copy of a shared inline function, which then faults on an older CPU.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "isa.h"
#include "kernel.h"

#if SPILLWAY_X86
#include <immintrin.h>
#endif

// Vectors wider than the machine's registers are passed only between inlined functions. Not undone
// at the end, since gcc asks for it when it emits code.
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC diagnostic push
#if !defined(__clang__)
// gcc 12 takes the "undefined" operand of its own AVX-512 intrinsics for a mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#if SPILLWAY_X86
#define SPILLWAY_SIMD avx512
#define SPILLWAY_SIMD_FILE "simd-avx512.h"
#if defined(__clang__)
#pragma clang attribute push(                                                                \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2"))),    \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2,prefer-vector-width=512")
#endif
#include SPILLWAY_BODY_FILE
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef SPILLWAY_SIMD
#undef SPILLWAY_SIMD_FILE

#define SPILLWAY_SIMD avx2
#define SPILLWAY_SIMD_FILE "simd-avx2.h"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2")
#endif
#include SPILLWAY_BODY_FILE
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef SPILLWAY_SIMD
#undef SPILLWAY_SIMD_FILE
#endif

#define SPILLWAY_SIMD portable
#define SPILLWAY_SIMD_FILE "simd-generic.h"
#include SPILLWAY_BODY_FILE
#undef SPILLWAY_SIMD
#undef SPILLWAY_SIMD_FILE

#pragma GCC diagnostic pop

// Calls `function arguments` of the instruction set in use.
#if SPILLWAY_X86
#define SPILLWAY_DISPATCH(function, arguments)  \
  switch (currentIsa()) {                       \
    case Isa::avx512:                           \
      return avx512::function arguments;        \
    case Isa::avx2:                             \
      return avx2::function arguments;          \
    default:                                    \
      return portable::function arguments;      \
  }
#else
#define SPILLWAY_DISPATCH(function, arguments) return portable::function arguments
#endif

// Registers the kernel `name`, whose bodies are `void name(KernelCall&)` in each namespace.
#define SPILLWAY_KERNEL_PER_ISA(name) \
  SPILLWAY_KERNEL(name) { SPILLWAY_DISPATCH(name, (call)); }

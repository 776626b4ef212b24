// Which instruction set the numeric kernels use: detected once, may be forced for tests.
//
// The pick is the addon's only process-wide state; it never changes a result, since every kernel
// gives the same bits on every instruction set.
#pragma once

#include <cstring>

#include "napi-helpers.h"

#if defined(__x86_64__)
#define SPILLWAY_X86 1
// A function with its own instruction set; the rest of the addon runs on any x86-64. Functions
// that one of these calls must be inlined into it.
#define SPILLWAY_AVX2 __attribute__((target("avx2,fma,f16c,bmi,bmi2"), noinline))
#define SPILLWAY_AVX512                                                              \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2," \
                        "prefer-vector-width=512"),                                  \
                 noinline))
#else
#define SPILLWAY_X86 0
#endif

// The body of a kernel: plain C++ that says each rounding, which the compiler vectorises once per
// instruction set. One body cannot give two results: contraction is off, reductions keep their
// order, and std::fma is exact everywhere (in hardware, or by the C library).
#define SPILLWAY_BODY inline __attribute__((always_inline))

// Defines `void name parameters` from `nameBody arguments`, one version per instruction set.
#if SPILLWAY_X86
#define SPILLWAY_VERSIONS(name, parameters, arguments)                       \
  SPILLWAY_AVX512 static void name##Avx512 parameters { name##Body arguments; } \
  SPILLWAY_AVX2 static void name##Avx2 parameters { name##Body arguments; }  \
  __attribute__((noinline)) static void name##Portable parameters {          \
    name##Body arguments;                                                    \
  }                                                                          \
  void name parameters {                                                     \
    switch (currentIsa()) {                                                  \
      case Isa::avx512:                                                      \
        return name##Avx512 arguments;                                       \
      case Isa::avx2:                                                        \
        return name##Avx2 arguments;                                         \
      default:                                                               \
        return name##Portable arguments;                                     \
    }                                                                        \
  }
#else
#define SPILLWAY_VERSIONS(name, parameters, arguments) \
  void name parameters { name##Body arguments; }
#endif

namespace spillway {

enum class Isa : int { portable = 0, neon = 1, avx2 = 2, avx512 = 3 };

// The instruction set in use.
Isa currentIsa();

// A float32 and its bit pattern.
SPILLWAY_BODY float floatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
SPILLWAY_BODY uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Exports isa(), setIsa(name) and isaList().
void registerIsa(napi_env env, napi_value exports);

}  // namespace spillway

// Which instruction set the numeric kernels use: detected once, may be forced for tests.
//
// The pick is the addon's only process-wide state; it never changes a result, since every kernel
// gives the same bits on every instruction set.
#pragma once

#include "napi-helpers.h"

#if defined(__x86_64__)
#define SPILLWAY_X86 1
// A function with its own instruction set; the rest of the addon runs on any x86-64. Functions
// that one of these calls must be inlined into it or bear the same attribute.
#define SPILLWAY_AVX2 __attribute__((target("avx2,fma,f16c,bmi,bmi2")))
#define SPILLWAY_AVX512                                                              \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2," \
                        "prefer-vector-width=512")))
#define SPILLWAY_SSE42 __attribute__((target("sse4.2,pclmul")))
#else
#define SPILLWAY_X86 0
#endif

namespace spillway {

enum class Isa : int { portable = 0, neon = 1, avx2 = 2, avx512 = 3 };

// The instruction set in use.
Isa currentIsa();

// Exports isa(), setIsa(name) and isaList().
void registerIsa(napi_env env, napi_value exports);

}  // namespace spillway

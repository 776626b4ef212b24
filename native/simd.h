// Sixteen lanes at a time, on every instruction set: the vector types of the numeric kernels.
//
// F16 float32 lanes, D16 float64 lanes, I16 int32 lanes, M16 a truth value per lane. AVX-512 holds
// an F16 in one register, AVX2 in two, other machines in whatever the compiler makes of a 64-byte
// vector. Sixteen everywhere, so that a reduction over lanes has one order and one set of bits.
// Every operation rounds once, as IEEE says; fma is fused everywhere; there are no approximations.
// What NaN bits come out is not defined, only that it is NaN.
//
// Included by body files (see simd-targets.h), once per instruction set, hence no #pragma once.
// The same names are written out in simd-avx512.h, simd-avx2.h and simd-generic.h:
//
//   load(p) loadPart(p, n) store(p, v) storePart(p, v, n)   p: float* or int32_t*; n lanes, 0..16,
//                                            missing lanes read as zero
//   splat(x) splatD(x) splatI(x)             + - * / of F16 and D16; + - * of I16, & | ^
//   fma(a, b, c) = a*b + c    fnma(a, b, c) = c - a*b
//   min(a, b) = a < b ? a : b    max(a, b) = a > b ? a : b    so b wins when either is NaN
//   sqrt abs round (to nearest even) floor; neg flips the sign bit
//   lt le eq ne gt ge -> M16 (ne is true for NaN, the others false); & | and ~ on M16;
//   any(m) all(m); select(m, a, b) = m ? a : b
//   toInt(F16) truncates, toIntRound rounds to nearest even; outside int32: -2^31
//   scale(x, n) = x * 2^n, n whole, -250..250, x of magnitude 1/2..2 (rounded once)
//   toFloat(I16); bits(F16) -> I16; fromBits(I16) -> F16; shiftLeft<k> shiftRight<k> (arithmetic)
//   widen(F16) -> D16; narrow(D16) -> F16; toIntRound(D16) -> I16, toDouble(I16) -> D16
//   exponentD(I16 n) -> D16 2^n for -1022 <= n <= 1023
//   loadD(p) storeD(p, v)                    p: double*, sixteen of them
//   loadBytes(p, n) -> I16                   bytes 0..255
//   maskOfBytes(p, n) -> M16                 byte != 0
//   storeMask(p, m, n)                       bytes 0 and 1
//   sumLanes(D16): lanes 0..15 added ascending
//   firstLanes(n) -> M16: true in the first n
#include SPILLWAY_SIMD_FILE

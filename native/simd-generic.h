// simd.h for any machine: vectors of the compiler (gcc, clang), cut to what the machine has.
//
// What those vectors cannot say is a loop over lanes: fma in hardware on arm64, and on x86-64
// without FMA exact by the C library.
#ifndef SPILLWAY_SIMD_GENERIC
#define SPILLWAY_SIMD_GENERIC

namespace spillway {
namespace portable {

typedef float VF __attribute__((vector_size(64)));
typedef int32_t VI __attribute__((vector_size(64)));
typedef uint32_t VU __attribute__((vector_size(64)));
typedef double VD __attribute__((vector_size(128)));
typedef int64_t VL __attribute__((vector_size(128)));

struct F16 {
  VF v;
};
struct I16 {
  VI v;
};
struct D16 {
  VD v;
};
// All bits of a lane set, or none.
struct M16 {
  VI v;
};

// Each lane by `expression` of i.
#define SPILLWAY_LANES(type, expression)              \
  type result;                                        \
  for (int i = 0; i < 16; ++i) result.v[i] = expression; \
  return result

SPILLWAY_BODY M16 firstLanes(size_t n) { SPILLWAY_LANES(M16, size_t(i) < n ? -1 : 0); }

SPILLWAY_BODY F16 splat(float x) { return {x - (VF){}}; }
SPILLWAY_BODY I16 splatI(int32_t x) { return {x - (VI){}}; }
SPILLWAY_BODY D16 splatD(double x) { return {x - (VD){}}; }

template <class T, class P>
SPILLWAY_BODY T loadWhole(const P* p) {
  T result;
  std::memcpy(&result.v, p, sizeof result.v);
  return result;
}
template <class T, class P>
SPILLWAY_BODY T loadFirst(const P* p, size_t n) {
  T result = {};
  std::memcpy(&result.v, p, n * sizeof *p);
  return result;
}
SPILLWAY_BODY F16 load(const float* p) { return loadWhole<F16>(p); }
SPILLWAY_BODY I16 load(const int32_t* p) { return loadWhole<I16>(p); }
SPILLWAY_BODY D16 loadD(const double* p) { return loadWhole<D16>(p); }
SPILLWAY_BODY F16 loadPart(const float* p, size_t n) { return loadFirst<F16>(p, n); }
SPILLWAY_BODY I16 loadPart(const int32_t* p, size_t n) { return loadFirst<I16>(p, n); }
SPILLWAY_BODY void store(float* p, F16 x) { std::memcpy(p, &x.v, sizeof x.v); }
SPILLWAY_BODY void store(int32_t* p, I16 x) { std::memcpy(p, &x.v, sizeof x.v); }
SPILLWAY_BODY void storeD(double* p, D16 x) { std::memcpy(p, &x.v, sizeof x.v); }
SPILLWAY_BODY void storePart(float* p, F16 x, size_t n) { std::memcpy(p, &x.v, n * sizeof *p); }
SPILLWAY_BODY void storePart(int32_t* p, I16 x, size_t n) { std::memcpy(p, &x.v, n * sizeof *p); }
SPILLWAY_BODY I16 loadBytes(const uint8_t* p, size_t n) {
  I16 result = {};
  for (size_t i = 0; i < n; ++i) result.v[i] = p[i];
  return result;
}
SPILLWAY_BODY M16 maskOfBytes(const uint8_t* p, size_t n) { return {loadBytes(p, n).v != 0}; }
SPILLWAY_BODY void storeMask(uint8_t* p, M16 m, size_t n) {
  for (size_t i = 0; i < n; ++i) p[i] = uint8_t(m.v[i] & 1);
}

SPILLWAY_BODY F16 operator+(F16 x, F16 y) { return {x.v + y.v}; }
SPILLWAY_BODY F16 operator-(F16 x, F16 y) { return {x.v - y.v}; }
SPILLWAY_BODY F16 operator*(F16 x, F16 y) { return {x.v * y.v}; }
SPILLWAY_BODY F16 operator/(F16 x, F16 y) { return {x.v / y.v}; }
SPILLWAY_BODY F16 fma(F16 x, F16 y, F16 z) {
  SPILLWAY_LANES(F16, __builtin_fmaf(x.v[i], y.v[i], z.v[i]));
}
SPILLWAY_BODY F16 fnma(F16 x, F16 y, F16 z) {
  SPILLWAY_LANES(F16, __builtin_fmaf(-x.v[i], y.v[i], z.v[i]));
}
SPILLWAY_BODY F16 min(F16 x, F16 y) { return {x.v < y.v ? x.v : y.v}; }
SPILLWAY_BODY F16 max(F16 x, F16 y) { return {x.v > y.v ? x.v : y.v}; }
SPILLWAY_BODY F16 sqrt(F16 x) { SPILLWAY_LANES(F16, __builtin_sqrtf(x.v[i])); }
SPILLWAY_BODY F16 abs(F16 x) { return {(VF)((VI)x.v & 0x7FFFFFFF)}; }
SPILLWAY_BODY F16 neg(F16 x) { return {(VF)((VI)x.v ^ (int32_t)0x80000000)}; }
SPILLWAY_BODY F16 round(F16 x) { SPILLWAY_LANES(F16, __builtin_rintf(x.v[i])); }
SPILLWAY_BODY F16 floor(F16 x) { SPILLWAY_LANES(F16, __builtin_floorf(x.v[i])); }
SPILLWAY_BODY F16 ceil(F16 x) { SPILLWAY_LANES(F16, __builtin_ceilf(x.v[i])); }

SPILLWAY_BODY D16 operator+(D16 x, D16 y) { return {x.v + y.v}; }
SPILLWAY_BODY D16 operator-(D16 x, D16 y) { return {x.v - y.v}; }
SPILLWAY_BODY D16 operator*(D16 x, D16 y) { return {x.v * y.v}; }
SPILLWAY_BODY D16 operator/(D16 x, D16 y) { return {x.v / y.v}; }
SPILLWAY_BODY D16 fma(D16 x, D16 y, D16 z) {
  SPILLWAY_LANES(D16, __builtin_fma(x.v[i], y.v[i], z.v[i]));
}
SPILLWAY_BODY D16 fnma(D16 x, D16 y, D16 z) {
  SPILLWAY_LANES(D16, __builtin_fma(-x.v[i], y.v[i], z.v[i]));
}
SPILLWAY_BODY D16 min(D16 x, D16 y) { return {x.v < y.v ? x.v : y.v}; }
SPILLWAY_BODY D16 max(D16 x, D16 y) { return {x.v > y.v ? x.v : y.v}; }
SPILLWAY_BODY D16 round(D16 x) { SPILLWAY_LANES(D16, __builtin_rint(x.v[i])); }
SPILLWAY_BODY D16 neg(D16 x) { return {(VD)((VL)x.v ^ (int64_t)0x8000000000000000)}; }

// Integers wrap; C++ says so of unsigned ones only.
SPILLWAY_BODY I16 operator+(I16 x, I16 y) { return {(VI)((VU)x.v + (VU)y.v)}; }
SPILLWAY_BODY I16 operator-(I16 x, I16 y) { return {(VI)((VU)x.v - (VU)y.v)}; }
SPILLWAY_BODY I16 operator*(I16 x, I16 y) { return {(VI)((VU)x.v * (VU)y.v)}; }
SPILLWAY_BODY I16 operator&(I16 x, I16 y) { return {x.v & y.v}; }
SPILLWAY_BODY I16 operator|(I16 x, I16 y) { return {x.v | y.v}; }
SPILLWAY_BODY I16 operator^(I16 x, I16 y) { return {x.v ^ y.v}; }
SPILLWAY_BODY I16 min(I16 x, I16 y) { return {x.v < y.v ? x.v : y.v}; }
SPILLWAY_BODY I16 max(I16 x, I16 y) { return {x.v > y.v ? x.v : y.v}; }
template <int k>
SPILLWAY_BODY I16 shiftLeft(I16 x) {
  return {(VI)((VU)x.v << k)};
}
template <int k>
SPILLWAY_BODY I16 shiftRight(I16 x) {
  return {x.v >> k};
}

SPILLWAY_BODY M16 lt(F16 x, F16 y) { return {x.v < y.v}; }
SPILLWAY_BODY M16 le(F16 x, F16 y) { return {x.v <= y.v}; }
SPILLWAY_BODY M16 gt(F16 x, F16 y) { return {x.v > y.v}; }
SPILLWAY_BODY M16 ge(F16 x, F16 y) { return {x.v >= y.v}; }
SPILLWAY_BODY M16 eq(F16 x, F16 y) { return {x.v == y.v}; }
SPILLWAY_BODY M16 ne(F16 x, F16 y) { return {x.v != y.v}; }
SPILLWAY_BODY M16 lt(I16 x, I16 y) { return {x.v < y.v}; }
SPILLWAY_BODY M16 le(I16 x, I16 y) { return {x.v <= y.v}; }
SPILLWAY_BODY M16 gt(I16 x, I16 y) { return {x.v > y.v}; }
SPILLWAY_BODY M16 ge(I16 x, I16 y) { return {x.v >= y.v}; }
SPILLWAY_BODY M16 eq(I16 x, I16 y) { return {x.v == y.v}; }
SPILLWAY_BODY M16 ne(I16 x, I16 y) { return {x.v != y.v}; }
SPILLWAY_BODY M16 operator&(M16 x, M16 y) { return {x.v & y.v}; }
SPILLWAY_BODY M16 operator|(M16 x, M16 y) { return {x.v | y.v}; }
SPILLWAY_BODY M16 operator~(M16 x) { return {~x.v}; }
SPILLWAY_BODY bool any(M16 m) {
  int32_t seen = 0;
  for (int i = 0; i < 16; ++i) seen |= m.v[i];
  return seen != 0;
}
SPILLWAY_BODY bool all(M16 m) { return !any(~m); }
SPILLWAY_BODY F16 select(M16 m, F16 x, F16 y) { return {m.v ? x.v : y.v}; }
SPILLWAY_BODY I16 select(M16 m, I16 x, I16 y) { return {m.v ? x.v : y.v}; }
SPILLWAY_BODY D16 select(M16 m, D16 x, D16 y) {
  SPILLWAY_LANES(D16, m.v[i] ? x.v[i] : y.v[i]);
}

SPILLWAY_BODY bool fitsInt(double x) { return x >= -2147483648.0 && x < 2147483648.0; }
SPILLWAY_BODY I16 toInt(F16 x) {
  SPILLWAY_LANES(I16, fitsInt(x.v[i]) ? int32_t(x.v[i]) : INT32_MIN);
}
SPILLWAY_BODY I16 toIntRound(F16 x) { return toInt(round(x)); }
SPILLWAY_BODY F16 toFloat(I16 x) { return {__builtin_convertvector(x.v, VF)}; }
SPILLWAY_BODY I16 bits(F16 x) { return {(VI)x.v}; }
SPILLWAY_BODY F16 fromBits(I16 x) { return {(VF)x.v}; }

SPILLWAY_BODY F16 scale(F16 x, F16 n) {
  // Two exact powers of two, since 2^n itself may lie outside float32; one product rounds at most.
  const I16 whole = toInt(n);
  const I16 half = shiftRight<1>(whole);
  const F16 first = fromBits(shiftLeft<23>(half + splatI(127)));
  const F16 second = fromBits(shiftLeft<23>(whole - half + splatI(127)));
  return x * first * second;
}

SPILLWAY_BODY D16 widen(F16 x) { return {__builtin_convertvector(x.v, VD)}; }
SPILLWAY_BODY F16 narrow(D16 x) { return {__builtin_convertvector(x.v, VF)}; }
SPILLWAY_BODY I16 toIntRound(D16 x) {
  const D16 whole = round(x);
  SPILLWAY_LANES(I16, fitsInt(whole.v[i]) ? int32_t(whole.v[i]) : INT32_MIN);
}
SPILLWAY_BODY D16 toDouble(I16 x) { return {__builtin_convertvector(x.v, VD)}; }
SPILLWAY_BODY D16 exponentD(I16 n) {
  VL biased;
  for (int i = 0; i < 16; ++i) biased[i] = int64_t(n.v[i]) + 1023;
  return {(VD)(biased << 52)};
}

SPILLWAY_BODY double sumLanes(D16 x) {
  double sum = x.v[0];
  for (int i = 1; i < 16; ++i) sum += x.v[i];
  return sum;
}

#undef SPILLWAY_LANES

}  // namespace portable
}  // namespace spillway
#endif

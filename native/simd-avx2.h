// simd.h for AVX2 with FMA: each vector is two registers (four for doubles).
#ifndef SPILLWAY_SIMD_AVX2
#define SPILLWAY_SIMD_AVX2

namespace spillway {
namespace avx2 {

struct F16 {
  __m256 a, b;
};
struct I16 {
  __m256i a, b;
};
struct D16 {
  __m256d a, b, c, d;
};
// All bits of a lane set, or none.
struct M16 {
  __m256i a, b;
};

SPILLWAY_BODY M16 firstLanes(size_t n) {
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i count = _mm256_set1_epi32(int(n));
  return {_mm256_cmpgt_epi32(count, low),
          _mm256_cmpgt_epi32(count, _mm256_add_epi32(low, _mm256_set1_epi32(8)))};
}

SPILLWAY_BODY F16 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
SPILLWAY_BODY I16 splatI(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
SPILLWAY_BODY D16 splatD(double x) {
  const __m256d v = _mm256_set1_pd(x);
  return {v, v, v, v};
}

SPILLWAY_BODY F16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
SPILLWAY_BODY I16 load(const int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
SPILLWAY_BODY D16 loadD(const double* p) {
  return {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4), _mm256_loadu_pd(p + 8),
          _mm256_loadu_pd(p + 12)};
}
SPILLWAY_BODY F16 loadPart(const float* p, size_t n) {
  const M16 m = firstLanes(n);
  return {_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
SPILLWAY_BODY I16 loadPart(const int32_t* p, size_t n) {
  const M16 m = firstLanes(n);
  return {_mm256_maskload_epi32(p, m.a), _mm256_maskload_epi32(p + 8, m.b)};
}
SPILLWAY_BODY void store(float* p, F16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
SPILLWAY_BODY void store(int32_t* p, I16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.b);
}
SPILLWAY_BODY void storeD(double* p, D16 x) {
  _mm256_storeu_pd(p, x.a);
  _mm256_storeu_pd(p + 4, x.b);
  _mm256_storeu_pd(p + 8, x.c);
  _mm256_storeu_pd(p + 12, x.d);
}
SPILLWAY_BODY void storePart(float* p, F16 x, size_t n) {
  const M16 m = firstLanes(n);
  _mm256_maskstore_ps(p, m.a, x.a);
  _mm256_maskstore_ps(p + 8, m.b, x.b);
}
SPILLWAY_BODY void storePart(int32_t* p, I16 x, size_t n) {
  const M16 m = firstLanes(n);
  _mm256_maskstore_epi32(p, m.a, x.a);
  _mm256_maskstore_epi32(p + 8, m.b, x.b);
}
SPILLWAY_BODY __m128i bytesPart(const uint8_t* p, size_t n) {
  if (n == 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  uint8_t bytes[16] = {0};
  for (size_t i = 0; i < n; ++i) bytes[i] = p[i];
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}
SPILLWAY_BODY I16 loadBytes(const uint8_t* p, size_t n) {
  const __m128i bytes = bytesPart(p, n);
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
SPILLWAY_BODY M16 maskOfBytes(const uint8_t* p, size_t n) {
  const I16 x = loadBytes(p, n);
  const __m256i zero = _mm256_setzero_si256();
  return {_mm256_cmpgt_epi32(x.a, zero), _mm256_cmpgt_epi32(x.b, zero)};
}
SPILLWAY_BODY void storeMask(uint8_t* p, M16 m, size_t n) {
  // packs works within 128-bit halves; the permutation puts the quarters in order again.
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packs_epi32(m.a, m.b), 0xD8);
  const __m128i bytes = _mm_and_si128(
      _mm_packs_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)),
      _mm_set1_epi8(1));
  if (n == 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  } else {
    uint8_t part[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(part), bytes);
    for (size_t i = 0; i < n; ++i) p[i] = part[i];
  }
}

SPILLWAY_BODY F16 operator+(F16 x, F16 y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
SPILLWAY_BODY F16 operator-(F16 x, F16 y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
SPILLWAY_BODY F16 operator*(F16 x, F16 y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
SPILLWAY_BODY F16 operator/(F16 x, F16 y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
SPILLWAY_BODY F16 fma(F16 x, F16 y, F16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
SPILLWAY_BODY F16 fnma(F16 x, F16 y, F16 z) {
  return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
SPILLWAY_BODY F16 min(F16 x, F16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
SPILLWAY_BODY F16 max(F16 x, F16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
SPILLWAY_BODY F16 sqrt(F16 x) { return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
SPILLWAY_BODY F16 abs(F16 x) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.a),
          _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.b)};
}
SPILLWAY_BODY F16 neg(F16 x) {
  return {_mm256_xor_ps(x.a, _mm256_set1_ps(-0.0f)), _mm256_xor_ps(x.b, _mm256_set1_ps(-0.0f))};
}
SPILLWAY_BODY F16 round(F16 x) { return {_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)}; }
SPILLWAY_BODY F16 floor(F16 x) { return {_mm256_round_ps(x.a, 9), _mm256_round_ps(x.b, 9)}; }
SPILLWAY_BODY F16 ceil(F16 x) { return {_mm256_round_ps(x.a, 10), _mm256_round_ps(x.b, 10)}; }

SPILLWAY_BODY D16 operator+(D16 x, D16 y) {
  return {_mm256_add_pd(x.a, y.a),
          _mm256_add_pd(x.b, y.b),
          _mm256_add_pd(x.c, y.c),
          _mm256_add_pd(x.d, y.d)};
}
SPILLWAY_BODY D16 operator-(D16 x, D16 y) {
  return {_mm256_sub_pd(x.a, y.a),
          _mm256_sub_pd(x.b, y.b),
          _mm256_sub_pd(x.c, y.c),
          _mm256_sub_pd(x.d, y.d)};
}
SPILLWAY_BODY D16 operator*(D16 x, D16 y) {
  return {_mm256_mul_pd(x.a, y.a),
          _mm256_mul_pd(x.b, y.b),
          _mm256_mul_pd(x.c, y.c),
          _mm256_mul_pd(x.d, y.d)};
}
SPILLWAY_BODY D16 operator/(D16 x, D16 y) {
  return {_mm256_div_pd(x.a, y.a),
          _mm256_div_pd(x.b, y.b),
          _mm256_div_pd(x.c, y.c),
          _mm256_div_pd(x.d, y.d)};
}
SPILLWAY_BODY D16 fma(D16 x, D16 y, D16 z) {
  return {_mm256_fmadd_pd(x.a, y.a, z.a),
          _mm256_fmadd_pd(x.b, y.b, z.b),
          _mm256_fmadd_pd(x.c, y.c, z.c),
          _mm256_fmadd_pd(x.d, y.d, z.d)};
}
SPILLWAY_BODY D16 fnma(D16 x, D16 y, D16 z) {
  return {_mm256_fnmadd_pd(x.a, y.a, z.a),
          _mm256_fnmadd_pd(x.b, y.b, z.b),
          _mm256_fnmadd_pd(x.c, y.c, z.c),
          _mm256_fnmadd_pd(x.d, y.d, z.d)};
}
SPILLWAY_BODY D16 min(D16 x, D16 y) {
  return {_mm256_min_pd(x.a, y.a),
          _mm256_min_pd(x.b, y.b),
          _mm256_min_pd(x.c, y.c),
          _mm256_min_pd(x.d, y.d)};
}
SPILLWAY_BODY D16 max(D16 x, D16 y) {
  return {_mm256_max_pd(x.a, y.a),
          _mm256_max_pd(x.b, y.b),
          _mm256_max_pd(x.c, y.c),
          _mm256_max_pd(x.d, y.d)};
}
SPILLWAY_BODY D16 round(D16 x) {
  return {_mm256_round_pd(x.a, 8),
          _mm256_round_pd(x.b, 8),
          _mm256_round_pd(x.c, 8),
          _mm256_round_pd(x.d, 8)};
}
SPILLWAY_BODY D16 neg(D16 x) {
  return {_mm256_xor_pd(x.a, _mm256_set1_pd(-0.0)),
          _mm256_xor_pd(x.b, _mm256_set1_pd(-0.0)),
          _mm256_xor_pd(x.c, _mm256_set1_pd(-0.0)),
          _mm256_xor_pd(x.d, _mm256_set1_pd(-0.0))};
}

SPILLWAY_BODY I16 operator+(I16 x, I16 y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
SPILLWAY_BODY I16 operator-(I16 x, I16 y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
SPILLWAY_BODY I16 operator*(I16 x, I16 y) {
  return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)};
}
SPILLWAY_BODY I16 operator&(I16 x, I16 y) {
  return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
SPILLWAY_BODY I16 operator|(I16 x, I16 y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
SPILLWAY_BODY I16 operator^(I16 x, I16 y) {
  return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
SPILLWAY_BODY I16 min(I16 x, I16 y) {
  return {_mm256_min_epi32(x.a, y.a), _mm256_min_epi32(x.b, y.b)};
}
SPILLWAY_BODY I16 max(I16 x, I16 y) {
  return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)};
}
template <int k>
SPILLWAY_BODY I16 shiftLeft(I16 x) {
  return {_mm256_slli_epi32(x.a, k), _mm256_slli_epi32(x.b, k)};
}
template <int k>
SPILLWAY_BODY I16 shiftRight(I16 x) {
  return {_mm256_srai_epi32(x.a, k), _mm256_srai_epi32(x.b, k)};
}

template <int predicate>
SPILLWAY_BODY M16 compare(F16 x, F16 y) {
  return {_mm256_castps_si256(_mm256_cmp_ps(x.a, y.a, predicate)),
          _mm256_castps_si256(_mm256_cmp_ps(x.b, y.b, predicate))};
}
SPILLWAY_BODY M16 lt(F16 x, F16 y) { return compare<_CMP_LT_OQ>(x, y); }
SPILLWAY_BODY M16 le(F16 x, F16 y) { return compare<_CMP_LE_OQ>(x, y); }
SPILLWAY_BODY M16 gt(F16 x, F16 y) { return compare<_CMP_GT_OQ>(x, y); }
SPILLWAY_BODY M16 ge(F16 x, F16 y) { return compare<_CMP_GE_OQ>(x, y); }
SPILLWAY_BODY M16 eq(F16 x, F16 y) { return compare<_CMP_EQ_OQ>(x, y); }
SPILLWAY_BODY M16 ne(F16 x, F16 y) { return compare<_CMP_NEQ_UQ>(x, y); }
SPILLWAY_BODY M16 operator&(M16 x, M16 y) {
  return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
SPILLWAY_BODY M16 operator|(M16 x, M16 y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
SPILLWAY_BODY M16 operator~(M16 x) {
  return {_mm256_xor_si256(x.a, _mm256_set1_epi32(-1)),
          _mm256_xor_si256(x.b, _mm256_set1_epi32(-1))};
}
SPILLWAY_BODY M16 gt(I16 x, I16 y) {
  return {_mm256_cmpgt_epi32(x.a, y.a), _mm256_cmpgt_epi32(x.b, y.b)};
}
SPILLWAY_BODY M16 eq(I16 x, I16 y) {
  return {_mm256_cmpeq_epi32(x.a, y.a), _mm256_cmpeq_epi32(x.b, y.b)};
}
SPILLWAY_BODY M16 lt(I16 x, I16 y) { return gt(y, x); }
SPILLWAY_BODY M16 le(I16 x, I16 y) { return ~gt(x, y); }
SPILLWAY_BODY M16 ge(I16 x, I16 y) { return ~gt(y, x); }
SPILLWAY_BODY M16 ne(I16 x, I16 y) { return ~eq(x, y); }
SPILLWAY_BODY bool any(M16 m) {
  const __m256i either = _mm256_or_si256(m.a, m.b);
  return !_mm256_testz_si256(either, either);
}
SPILLWAY_BODY bool all(M16 m) {
  return _mm256_testc_si256(_mm256_and_si256(m.a, m.b), _mm256_set1_epi32(-1));
}
SPILLWAY_BODY F16 select(M16 m, F16 x, F16 y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(m.a)),
          _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(m.b))};
}
SPILLWAY_BODY I16 select(M16 m, I16 x, I16 y) {
  return {_mm256_blendv_epi8(y.a, x.a, m.a), _mm256_blendv_epi8(y.b, x.b, m.b)};
}
SPILLWAY_BODY __m256d maskD(__m128i half) {
  return _mm256_castsi256_pd(_mm256_cvtepi32_epi64(half));
}
SPILLWAY_BODY D16 select(M16 m, D16 x, D16 y) {
  return {_mm256_blendv_pd(y.a, x.a, maskD(_mm256_castsi256_si128(m.a))),
          _mm256_blendv_pd(y.b, x.b, maskD(_mm256_extracti128_si256(m.a, 1))),
          _mm256_blendv_pd(y.c, x.c, maskD(_mm256_castsi256_si128(m.b))),
          _mm256_blendv_pd(y.d, x.d, maskD(_mm256_extracti128_si256(m.b, 1)))};
}

SPILLWAY_BODY I16 toInt(F16 x) { return {_mm256_cvttps_epi32(x.a), _mm256_cvttps_epi32(x.b)}; }
SPILLWAY_BODY I16 toIntRound(F16 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
SPILLWAY_BODY F16 toFloat(I16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
SPILLWAY_BODY I16 bits(F16 x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
SPILLWAY_BODY F16 fromBits(I16 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }

SPILLWAY_BODY F16 scale(F16 x, F16 n) {
  // Two exact powers of two, since 2^n itself may lie outside float32; one product rounds at most.
  const I16 whole = toInt(n);
  const I16 half = shiftRight<1>(whole);
  const F16 first = fromBits(shiftLeft<23>(half + splatI(127)));
  const F16 second = fromBits(shiftLeft<23>(whole - half + splatI(127)));
  return x * first * second;
}

SPILLWAY_BODY D16 widen(F16 x) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(x.a)),
          _mm256_cvtps_pd(_mm256_extractf128_ps(x.a, 1)),
          _mm256_cvtps_pd(_mm256_castps256_ps128(x.b)),
          _mm256_cvtps_pd(_mm256_extractf128_ps(x.b, 1))};
}
SPILLWAY_BODY F16 narrow(D16 x) {
  return {_mm256_set_m128(_mm256_cvtpd_ps(x.b), _mm256_cvtpd_ps(x.a)),
          _mm256_set_m128(_mm256_cvtpd_ps(x.d), _mm256_cvtpd_ps(x.c))};
}
SPILLWAY_BODY I16 toIntRound(D16 x) {
  return {_mm256_set_m128i(_mm256_cvtpd_epi32(x.b), _mm256_cvtpd_epi32(x.a)),
          _mm256_set_m128i(_mm256_cvtpd_epi32(x.d), _mm256_cvtpd_epi32(x.c))};
}
SPILLWAY_BODY D16 toDouble(I16 x) {
  return {_mm256_cvtepi32_pd(_mm256_castsi256_si128(x.a)),
          _mm256_cvtepi32_pd(_mm256_extracti128_si256(x.a, 1)),
          _mm256_cvtepi32_pd(_mm256_castsi256_si128(x.b)),
          _mm256_cvtepi32_pd(_mm256_extracti128_si256(x.b, 1))};
}
SPILLWAY_BODY __m256d exponentOf(__m128i biased) {
  return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_cvtepi32_epi64(biased), 52));
}
SPILLWAY_BODY D16 exponentD(I16 n) {
  const I16 biased = n + splatI(1023);
  return {exponentOf(_mm256_castsi256_si128(biased.a)),
          exponentOf(_mm256_extracti128_si256(biased.a, 1)),
          exponentOf(_mm256_castsi256_si128(biased.b)),
          exponentOf(_mm256_extracti128_si256(biased.b, 1))};
}

SPILLWAY_BODY double sumLanes(D16 x) {
  double lanes[16];
  storeD(lanes, x);
  double sum = lanes[0];
  for (int i = 1; i < 16; ++i) sum += lanes[i];
  return sum;
}

}  // namespace avx2
}  // namespace spillway
#endif

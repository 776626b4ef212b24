// simd.h for AVX-512 (F, BW, DQ, VL).
#ifndef SPILLWAY_SIMD_AVX512
#define SPILLWAY_SIMD_AVX512

namespace spillway {
namespace avx512 {

struct F16 {
  __m512 v;
};
struct I16 {
  __m512i v;
};
struct D16 {
  __m512d a, b;
};
struct M16 {
  __mmask16 v;
};

SPILLWAY_BODY __mmask16 lanesMask(size_t n) { return __mmask16((1u << n) - 1); }
SPILLWAY_BODY M16 firstLanes(size_t n) { return {lanesMask(n)}; }

SPILLWAY_BODY F16 splat(float x) { return {_mm512_set1_ps(x)}; }
SPILLWAY_BODY I16 splatI(int32_t x) { return {_mm512_set1_epi32(x)}; }
SPILLWAY_BODY D16 splatD(double x) { return {_mm512_set1_pd(x), _mm512_set1_pd(x)}; }

SPILLWAY_BODY F16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
SPILLWAY_BODY I16 load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
SPILLWAY_BODY D16 loadD(const double* p) { return {_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8)}; }
SPILLWAY_BODY F16 loadPart(const float* p, size_t n) {
  return {_mm512_maskz_loadu_ps(lanesMask(n), p)};
}
SPILLWAY_BODY I16 loadPart(const int32_t* p, size_t n) {
  return {_mm512_maskz_loadu_epi32(lanesMask(n), p)};
}
SPILLWAY_BODY void store(float* p, F16 x) { _mm512_storeu_ps(p, x.v); }
SPILLWAY_BODY void store(int32_t* p, I16 x) { _mm512_storeu_si512(p, x.v); }
SPILLWAY_BODY void storeD(double* p, D16 x) {
  _mm512_storeu_pd(p, x.a);
  _mm512_storeu_pd(p + 8, x.b);
}
SPILLWAY_BODY void storePart(float* p, F16 x, size_t n) {
  _mm512_mask_storeu_ps(p, lanesMask(n), x.v);
}
SPILLWAY_BODY void storePart(int32_t* p, I16 x, size_t n) {
  _mm512_mask_storeu_epi32(p, lanesMask(n), x.v);
}
SPILLWAY_BODY I16 loadBytes(const uint8_t* p, size_t n) {
  return {_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lanesMask(n), p))};
}
SPILLWAY_BODY M16 maskOfBytes(const uint8_t* p, size_t n) {
  const __m128i bytes = _mm_maskz_loadu_epi8(lanesMask(n), p);
  return {_mm_test_epi8_mask(bytes, bytes)};
}
SPILLWAY_BODY void storeMask(uint8_t* p, M16 m, size_t n) {
  _mm_mask_storeu_epi8(p, lanesMask(n), _mm_maskz_set1_epi8(m.v, 1));
}

SPILLWAY_BODY F16 operator+(F16 x, F16 y) { return {_mm512_add_ps(x.v, y.v)}; }
SPILLWAY_BODY F16 operator-(F16 x, F16 y) { return {_mm512_sub_ps(x.v, y.v)}; }
SPILLWAY_BODY F16 operator*(F16 x, F16 y) { return {_mm512_mul_ps(x.v, y.v)}; }
SPILLWAY_BODY F16 operator/(F16 x, F16 y) { return {_mm512_div_ps(x.v, y.v)}; }
SPILLWAY_BODY F16 fma(F16 x, F16 y, F16 z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }
SPILLWAY_BODY F16 fnma(F16 x, F16 y, F16 z) { return {_mm512_fnmadd_ps(x.v, y.v, z.v)}; }
SPILLWAY_BODY F16 min(F16 x, F16 y) { return {_mm512_min_ps(x.v, y.v)}; }
SPILLWAY_BODY F16 max(F16 x, F16 y) { return {_mm512_max_ps(x.v, y.v)}; }
SPILLWAY_BODY F16 sqrt(F16 x) { return {_mm512_sqrt_ps(x.v)}; }
SPILLWAY_BODY F16 abs(F16 x) { return {_mm512_abs_ps(x.v)}; }
SPILLWAY_BODY F16 neg(F16 x) { return {_mm512_xor_ps(x.v, _mm512_set1_ps(-0.0f))}; }
SPILLWAY_BODY F16 round(F16 x) { return {_mm512_roundscale_ps(x.v, 8)}; }
SPILLWAY_BODY F16 floor(F16 x) { return {_mm512_roundscale_ps(x.v, 9)}; }
SPILLWAY_BODY F16 ceil(F16 x) { return {_mm512_roundscale_ps(x.v, 10)}; }

SPILLWAY_BODY D16 operator+(D16 x, D16 y) {
  return {_mm512_add_pd(x.a, y.a), _mm512_add_pd(x.b, y.b)};
}
SPILLWAY_BODY D16 operator-(D16 x, D16 y) {
  return {_mm512_sub_pd(x.a, y.a), _mm512_sub_pd(x.b, y.b)};
}
SPILLWAY_BODY D16 operator*(D16 x, D16 y) {
  return {_mm512_mul_pd(x.a, y.a), _mm512_mul_pd(x.b, y.b)};
}
SPILLWAY_BODY D16 operator/(D16 x, D16 y) {
  return {_mm512_div_pd(x.a, y.a), _mm512_div_pd(x.b, y.b)};
}
SPILLWAY_BODY D16 fma(D16 x, D16 y, D16 z) {
  return {_mm512_fmadd_pd(x.a, y.a, z.a), _mm512_fmadd_pd(x.b, y.b, z.b)};
}
SPILLWAY_BODY D16 fnma(D16 x, D16 y, D16 z) {
  return {_mm512_fnmadd_pd(x.a, y.a, z.a), _mm512_fnmadd_pd(x.b, y.b, z.b)};
}
SPILLWAY_BODY D16 min(D16 x, D16 y) {
  return {_mm512_min_pd(x.a, y.a), _mm512_min_pd(x.b, y.b)};
}
SPILLWAY_BODY D16 max(D16 x, D16 y) {
  return {_mm512_max_pd(x.a, y.a), _mm512_max_pd(x.b, y.b)};
}
SPILLWAY_BODY D16 round(D16 x) {
  return {_mm512_roundscale_pd(x.a, 8), _mm512_roundscale_pd(x.b, 8)};
}
SPILLWAY_BODY D16 neg(D16 x) {
  const __m512d sign = _mm512_set1_pd(-0.0);
  return {_mm512_xor_pd(x.a, sign), _mm512_xor_pd(x.b, sign)};
}

SPILLWAY_BODY I16 operator+(I16 x, I16 y) { return {_mm512_add_epi32(x.v, y.v)}; }
SPILLWAY_BODY I16 operator-(I16 x, I16 y) { return {_mm512_sub_epi32(x.v, y.v)}; }
SPILLWAY_BODY I16 operator*(I16 x, I16 y) { return {_mm512_mullo_epi32(x.v, y.v)}; }
SPILLWAY_BODY I16 operator&(I16 x, I16 y) { return {_mm512_and_si512(x.v, y.v)}; }
SPILLWAY_BODY I16 operator|(I16 x, I16 y) { return {_mm512_or_si512(x.v, y.v)}; }
SPILLWAY_BODY I16 operator^(I16 x, I16 y) { return {_mm512_xor_si512(x.v, y.v)}; }
SPILLWAY_BODY I16 min(I16 x, I16 y) { return {_mm512_min_epi32(x.v, y.v)}; }
SPILLWAY_BODY I16 max(I16 x, I16 y) { return {_mm512_max_epi32(x.v, y.v)}; }
template <int k>
SPILLWAY_BODY I16 shiftLeft(I16 x) {
  return {_mm512_slli_epi32(x.v, k)};
}
template <int k>
SPILLWAY_BODY I16 shiftRight(I16 x) {
  return {_mm512_srai_epi32(x.v, k)};
}

SPILLWAY_BODY M16 lt(F16 x, F16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ)}; }
SPILLWAY_BODY M16 le(F16 x, F16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_LE_OQ)}; }
SPILLWAY_BODY M16 gt(F16 x, F16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_GT_OQ)}; }
SPILLWAY_BODY M16 ge(F16 x, F16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_GE_OQ)}; }
SPILLWAY_BODY M16 eq(F16 x, F16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_EQ_OQ)}; }
SPILLWAY_BODY M16 ne(F16 x, F16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_NEQ_UQ)}; }
SPILLWAY_BODY M16 lt(I16 x, I16 y) { return {_mm512_cmp_epi32_mask(x.v, y.v, _MM_CMPINT_LT)}; }
SPILLWAY_BODY M16 le(I16 x, I16 y) { return {_mm512_cmp_epi32_mask(x.v, y.v, _MM_CMPINT_LE)}; }
SPILLWAY_BODY M16 gt(I16 x, I16 y) { return {_mm512_cmp_epi32_mask(x.v, y.v, _MM_CMPINT_NLE)}; }
SPILLWAY_BODY M16 ge(I16 x, I16 y) { return {_mm512_cmp_epi32_mask(x.v, y.v, _MM_CMPINT_NLT)}; }
SPILLWAY_BODY M16 eq(I16 x, I16 y) { return {_mm512_cmp_epi32_mask(x.v, y.v, _MM_CMPINT_EQ)}; }
SPILLWAY_BODY M16 ne(I16 x, I16 y) { return {_mm512_cmp_epi32_mask(x.v, y.v, _MM_CMPINT_NE)}; }
SPILLWAY_BODY M16 operator&(M16 x, M16 y) { return {__mmask16(x.v & y.v)}; }
SPILLWAY_BODY M16 operator|(M16 x, M16 y) { return {__mmask16(x.v | y.v)}; }
SPILLWAY_BODY M16 operator~(M16 x) { return {__mmask16(~x.v)}; }
SPILLWAY_BODY bool any(M16 m) { return m.v != 0; }
SPILLWAY_BODY bool all(M16 m) { return m.v == 0xFFFF; }
SPILLWAY_BODY F16 select(M16 m, F16 x, F16 y) { return {_mm512_mask_blend_ps(m.v, y.v, x.v)}; }
SPILLWAY_BODY I16 select(M16 m, I16 x, I16 y) { return {_mm512_mask_blend_epi32(m.v, y.v, x.v)}; }
SPILLWAY_BODY D16 select(M16 m, D16 x, D16 y) {
  return {_mm512_mask_blend_pd(__mmask8(m.v), y.a, x.a),
          _mm512_mask_blend_pd(__mmask8(m.v >> 8), y.b, x.b)};
}

SPILLWAY_BODY I16 toInt(F16 x) { return {_mm512_cvttps_epi32(x.v)}; }
SPILLWAY_BODY I16 toIntRound(F16 x) { return {_mm512_cvtps_epi32(x.v)}; }
SPILLWAY_BODY F16 toFloat(I16 x) { return {_mm512_cvtepi32_ps(x.v)}; }
SPILLWAY_BODY I16 bits(F16 x) { return {_mm512_castps_si512(x.v)}; }
SPILLWAY_BODY F16 fromBits(I16 x) { return {_mm512_castsi512_ps(x.v)}; }

SPILLWAY_BODY F16 scale(F16 x, F16 n) { return {_mm512_scalef_ps(x.v, n.v)}; }

SPILLWAY_BODY D16 widen(F16 x) {
  return {_mm512_cvtps_pd(_mm512_castps512_ps256(x.v)),
          _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1))};
}
SPILLWAY_BODY F16 narrow(D16 x) {
  return {_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x.a)), _mm512_cvtpd_ps(x.b),
                             1)};
}
SPILLWAY_BODY I16 toIntRound(D16 x) {
  return {_mm512_inserti32x8(_mm512_castsi256_si512(_mm512_cvtpd_epi32(x.a)),
                             _mm512_cvtpd_epi32(x.b), 1)};
}
SPILLWAY_BODY D16 toDouble(I16 x) {
  return {_mm512_cvtepi32_pd(_mm512_castsi512_si256(x.v)),
          _mm512_cvtepi32_pd(_mm512_extracti32x8_epi32(x.v, 1))};
}
SPILLWAY_BODY D16 exponentD(I16 n) {
  const __m512i biased = _mm512_add_epi32(n.v, _mm512_set1_epi32(1023));
  return {_mm512_castsi512_pd(_mm512_slli_epi64(
              _mm512_cvtepi32_epi64(_mm512_castsi512_si256(biased)), 52)),
          _mm512_castsi512_pd(_mm512_slli_epi64(
              _mm512_cvtepi32_epi64(_mm512_extracti32x8_epi32(biased, 1)), 52))};
}

SPILLWAY_BODY double sumLanes(D16 x) {
  double lanes[16];
  storeD(lanes, x);
  double sum = lanes[0];
  for (int i = 1; i < 16; ++i) sum += lanes[i];
  return sum;
}

}  // namespace avx512
}  // namespace spillway
#endif

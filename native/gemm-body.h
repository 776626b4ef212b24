// Tile kernels and packers of the matrix product, once per instruction set (see simd-targets.h).
//
// A tile keeps rows × vectors of C in registers: 14 × 2 of 16 lanes on AVX-512 (28 of its 32
// registers, 28 multiply-adds for 16 loads), 6 × 1 of 16 lanes in two registers on AVX2.
#include "simd.h"

#define SPILLWAY_GEMM_avx512 3
#define SPILLWAY_GEMM_avx2 2
#define SPILLWAY_GEMM_portable 1
#define SPILLWAY_GEMM_PASTE2(a, b) a##b
#define SPILLWAY_GEMM_PASTE(a, b) SPILLWAY_GEMM_PASTE2(a, b)
#define SPILLWAY_GEMM_SET SPILLWAY_GEMM_PASTE(SPILLWAY_GEMM_, SPILLWAY_SIMD)

namespace spillway {
namespace SPILLWAY_SIMD {

#if SPILLWAY_GEMM_SET == 3
// Rows of a direct tile stay below the 12 ways of the first-level cache: with a leading dimension
// of 1024 floats all of them fall into one set.
constexpr int kGemmRows = 14, kGemmDirectRows = 8, kGemmPanelWidth = 1;
// Whether sums, lane vectors and one factor fit the 32 registers.
constexpr bool gemmFits(int rows, int vectors) { return rows * vectors + vectors + 1 <= 32; }
#elif SPILLWAY_GEMM_SET == 2
constexpr int kGemmRows = 6, kGemmDirectRows = 6, kGemmPanelWidth = 0;
constexpr bool gemmFits(int rows, int vectors) { return 2 * (rows * vectors + vectors) + 1 <= 16; }
#else
constexpr int kGemmRows = 4, kGemmDirectRows = 4, kGemmPanelWidth = 0;
constexpr bool gemmFits(int rows, int vectors) { return rows * vectors <= 4; }
#endif

// The loops over R and V are unrolled whole, so that the sums live in registers.
// How many steps of k ahead rows are fetched: few enough that lines 4 KiB apart, which share a set
// of the first-level cache, do not push each other out.
constexpr int kGemmRowSteps = 8;

static_assert(kGemmDirectRows <= int(kGemmMostDirectRows), "the driver stages that many rows");

template <int hint>
SPILLWAY_BODY void gemmFetch(GemmAhead& ahead) {
  if (ahead.count == 0) return;
  __builtin_prefetch(ahead.data, 0, hint);
  __builtin_prefetch(ahead.data + 64, 0, hint);
  ahead.data += ahead.step;
  --ahead.count;
}

template <int R, int V, bool kMajor, bool copying>
static void gemmTile(const GemmTile& tile) {
  F16 sums[R][V];
  if (tile.first) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sums[r][v] = splat(0);
    }
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sums[r][v] = load(tile.c + r * tile.cStep + 16 * v);
    }
  }
  // Row r of a row-major tile is at base[r / 3] + (r % 3) * rowStep: few pointers and the two
  // multiples that an address can hold, where a pointer per row would not fit the registers.
  constexpr int kBases = kMajor ? 1 : (R + 2) / 3;
  const float* base[kBases];
#pragma GCC unroll 16
  for (int g = 0; g < kBases; ++g) base[g] = tile.rows + 3 * g * tile.rowStep;
  const float* lanes = tile.lanes;
  float* copy = tile.copy;
  const ptrdiff_t rowStep = tile.rowStep, laneStep = tile.laneStep;

  const auto step = [&]() __attribute__((always_inline)) {
    F16 vectors[V];
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) vectors[v] = load(lanes + 16 * v);
    if (copying) {
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) store(copy + 16 * v, vectors[v]);
      copy += 16 * V;
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const F16 factor = splat(kMajor ? base[0][r] : base[r / 3][(r % 3) * rowStep]);
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sums[r][v] = fma(factor, vectors[v], sums[r][v]);
    }
    lanes += laneStep;
    if (kMajor) {
      // Rows in place may be a power of two apart, which no hardware prefetcher follows.
      __builtin_prefetch(base[0] + kGemmRowSteps * rowStep, 0, 3);
      if (R > 1) __builtin_prefetch(base[0] + kGemmRowSteps * rowStep + R - 1, 0, 3);
      base[0] += rowStep;
    } else {
#pragma GCC unroll 16
      for (int g = 0; g < kBases; ++g) ++base[g];
    }
  };
  GemmAhead lanesAhead = tile.lanesAhead, cAhead = tile.cAhead;
  size_t k = tile.k;
  for (; k >= 4; k -= 4) {
    gemmFetch<2>(lanesAhead);
    gemmFetch<3>(cAhead);
    step();
    step();
    step();
    step();
  }
  for (; k > 0; --k) step();
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) store(tile.c + r * tile.cStep + 16 * v, sums[r][v]);
  }
}

template <int R, int W, bool kMajor, bool copying>
constexpr GemmTileFn gemmTileOrNull() {
  constexpr int kMost = kMajor ? kGemmRows : kGemmDirectRows;
  // Only lanes that are read in place come in panels wider than the packed ones.
  constexpr bool wanted = W <= kGemmPanelWidth || (kMajor && !copying);
  if constexpr (R <= kMost && wanted && gemmFits(R, 1 << W)) {
    return gemmTile<R, (1 << W), kMajor, copying>;
  } else {
    return nullptr;
  }
}

template <int R, bool kMajor, bool copying, int... W>
constexpr void gemmFillTiles(GemmTileFn (&tiles)[kTileWidths], std::integer_sequence<int, W...>) {
  ((tiles[W] = gemmTileOrNull<R, W, kMajor, copying>()), ...);
}

template <int R>
constexpr GemmTiles gemmTilesOf() {
  constexpr std::make_integer_sequence<int, kTileWidths> widths{};
  GemmTiles tiles{};
  gemmFillTiles<R, true, false>(tiles.kMajor, widths);
  gemmFillTiles<R, true, true>(tiles.kMajorCopying, widths);
  gemmFillTiles<R, false, false>(tiles.rowMajor, widths);
  gemmFillTiles<R, false, true>(tiles.rowMajorCopying, widths);
  return tiles;
}

template <class Sequence>
struct GemmTileTable;
template <int... R>
struct GemmTileTable<std::integer_sequence<int, R...>> {
  static constexpr GemmTiles kTiles[] = {gemmTilesOf<R + 1>()...};
};

// Four steps of sixteen rows, transposed: step k + s of row i goes to target[s * width + i].
// `rows` are offsets from `source`.
#if SPILLWAY_GEMM_SET == 3
SPILLWAY_BODY __m512 gemmQuads(const float* source, const ptrdiff_t* rows) {
  __m512 quads = _mm512_castps128_ps512(_mm_loadu_ps(source + rows[0]));
  quads = _mm512_mask_broadcast_f32x4(quads, 0x00F0, _mm_loadu_ps(source + rows[4]));
  quads = _mm512_mask_broadcast_f32x4(quads, 0x0F00, _mm_loadu_ps(source + rows[8]));
  return _mm512_mask_broadcast_f32x4(quads, 0xF000, _mm_loadu_ps(source + rows[12]));
}
SPILLWAY_BODY void gemmTransposeQuads(float* target, size_t width, const float* source,
                                      const ptrdiff_t* rows) {
  const __m512 q0 = gemmQuads(source, rows), q1 = gemmQuads(source, rows + 1);
  const __m512 q2 = gemmQuads(source, rows + 2), q3 = gemmQuads(source, rows + 3);
  const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(q0, q1));
  const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(q0, q1));
  const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(q2, q3));
  const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(q2, q3));
  _mm512_storeu_pd(target, _mm512_unpacklo_pd(low01, low23));
  _mm512_storeu_pd(target + width, _mm512_unpackhi_pd(low01, low23));
  _mm512_storeu_pd(target + 2 * width, _mm512_unpacklo_pd(high01, high23));
  _mm512_storeu_pd(target + 3 * width, _mm512_unpackhi_pd(high01, high23));
}
#elif SPILLWAY_GEMM_SET == 2
SPILLWAY_BODY __m256 gemmQuads(const float* source, const ptrdiff_t* rows) {
  const __m256 quads = _mm256_castps128_ps256(_mm_loadu_ps(source + rows[0]));
  return _mm256_insertf128_ps(quads, _mm_loadu_ps(source + rows[4]), 1);
}
SPILLWAY_BODY void gemmTransposeEight(float* target, size_t width, const float* source,
                                      const ptrdiff_t* rows) {
  const __m256 q0 = gemmQuads(source, rows), q1 = gemmQuads(source, rows + 1);
  const __m256 q2 = gemmQuads(source, rows + 2), q3 = gemmQuads(source, rows + 3);
  const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(q0, q1));
  const __m256d high01 = _mm256_castps_pd(_mm256_unpackhi_ps(q0, q1));
  const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(q2, q3));
  const __m256d high23 = _mm256_castps_pd(_mm256_unpackhi_ps(q2, q3));
  _mm256_storeu_ps(target, _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23)));
  _mm256_storeu_ps(target + width, _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23)));
  _mm256_storeu_ps(target + 2 * width, _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23)));
  _mm256_storeu_ps(target + 3 * width, _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23)));
}
SPILLWAY_BODY void gemmTransposeQuads(float* target, size_t width, const float* source,
                                      const ptrdiff_t* rows) {
  gemmTransposeEight(target, width, source, rows);
  gemmTransposeEight(target + 8, width, source, rows + 8);
}
#else
SPILLWAY_BODY void gemmTransposeQuads(float* target, size_t width, const float* source,
                                      const ptrdiff_t* rows) {
  for (size_t s = 0; s < 4; ++s) {
    for (size_t i = 0; i < 16; ++i) target[s * width + i] = source[rows[i] + ptrdiff_t(s)];
  }
}
#endif

// Sixteen rows of k steps into a panel; rows beyond `count` repeat the last.
static void gemmPackSixteen(float* panel, size_t width, const float* source, ptrdiff_t leading,
                            size_t count, size_t k) {
  ptrdiff_t rows[16];
  for (size_t i = 0; i < 16; ++i) rows[i] = ptrdiff_t(i < count ? i : count - 1) * leading;
  size_t step = 0;
  for (; step + 4 <= k; step += 4) {
    gemmTransposeQuads(panel + step * width, width, source + step, rows);
  }
  for (; step < k; ++step) {
    for (size_t i = 0; i < 16; ++i) panel[step * width + i] = source[rows[i] + ptrdiff_t(step)];
  }
}

SPILLWAY_BODY void gemmDecode(float* __restrict target, const uint16_t* __restrict source,
                              size_t count) {
  for (size_t i = 0; i < count; ++i) target[i] = floatOf(uint32_t(source[i]) << 16);
}

static void gemmDecodeRows(float* target, const void* source, ptrdiff_t leading, size_t count,
                           size_t k) {
  const auto* bf16 = static_cast<const uint16_t*>(source);
  for (size_t i = 0; i < count; ++i) gemmDecode(target + i * k, bf16 + ptrdiff_t(i) * leading, k);
}

static void gemmPackFloat32(float* panel, size_t width, const void* source, ptrdiff_t leading,
                            bool alongK, size_t count, size_t k) {
  const auto* from = static_cast<const float*>(source);
  for (size_t i = 0; i < width; i += 16) {
    const size_t some = i < count ? count - i : 0;
    if (alongK && some > 0) {
      gemmPackSixteen(panel + i, width, from + ptrdiff_t(i) * leading, leading, some, k);
      continue;
    }
    const size_t part = some < 16 ? some : 16;
    for (size_t step = 0; step < k; ++step) {
      const float* at = from + ptrdiff_t(step) * leading + i;
      store(panel + step * width + i, part == 16 ? load(at) : loadPart(at, part));
    }
  }
}

static void gemmPackBfloat16(float* panel, size_t width, const void* source, ptrdiff_t leading,
                             bool alongK, size_t count, size_t k) {
  const auto* from = static_cast<const uint16_t*>(source);
  constexpr size_t kSteps = 64;
  for (size_t i = 0; i < width; i += 16) {
    const size_t some = i < count ? (count - i < 16 ? count - i : 16) : 0;
    if (alongK && some > 0) {
      float decoded[16 * kSteps];
      for (size_t step = 0; step < k; step += kSteps) {
        const size_t steps = k - step < kSteps ? k - step : kSteps;
        gemmDecodeRows(decoded, from + ptrdiff_t(i) * leading + step, leading, some, steps);
        gemmPackSixteen(panel + step * width + i, width, decoded, ptrdiff_t(steps), some, steps);
      }
      continue;
    }
    for (size_t step = 0; step < k; ++step) {
      float* to = panel + step * width + i;
      const uint16_t* at = from + ptrdiff_t(step) * leading + i;
      if (some == 16) {
        gemmDecode(to, at, 16);
      } else {
        gemmDecode(to, at, some);
        for (size_t j = some; j < 16; ++j) to[j] = 0;
      }
    }
  }
}

static void gemmFinish(const GemmFinish& f) {
  for (size_t r = 0; r < f.rows; ++r) {
    float* c = f.c + ptrdiff_t(r) * f.cStep;
    if (f.laneBias != nullptr) {
      for (size_t i = 0; i < f.lanes; ++i) c[i] = c[i] + f.laneBias[i];
    }
    if (f.rowBias != nullptr) {
      const float bias = f.rowBias[r];
      for (size_t i = 0; i < f.lanes; ++i) c[i] = c[i] + bias;
    }
    if (f.relu) {
      // NaN stays NaN and -0 becomes +0, as Math.max(0, x) has it.
      for (size_t i = 0; i < f.lanes; ++i) c[i] = c[i] <= 0.0f ? 0.0f : c[i];
    }
  }
}

static constexpr GemmIsa kGemm = {
    GemmTileTable<std::make_integer_sequence<int, kGemmRows>>::kTiles,
    kGemmRows,
    kGemmDirectRows,
    kGemmPanelWidth,
    gemmPackFloat32,
    gemmPackBfloat16,
    gemmDecodeRows,
    gemmFinish,
};

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

#undef SPILLWAY_GEMM_SET

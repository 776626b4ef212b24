// C (+)= A·B on tiles that lie in the cache, for kernels that form their products piece by piece.
//
// Every element of C is one chain of fma over ascending k that starts at 0 or at its old value, so
// no cut into blocks changes its bits. B and C are row-major and whole vectors of 16 wide (pad them
// with zeros); A is read one element at a time with any two strides, hence transposed for nothing.
//
// A body header: included by body files (simd-targets.h), which include simd.h first. Needs
// kTileVectors_<set>, below, from outside the region.
namespace spillway {
namespace SPILLWAY_SIMD {

// C[m][16·v …] (+)= Σ_k A[m·rowA + k·stepA]·B[k·ldb + 16·v …], M rows and V vectors in registers.
template <int M, int V>
__attribute__((noinline)) static void productBlock(const float* a, size_t rowA, size_t stepA,
                                                   const float* b, size_t ldb, float* c, size_t ldc,
                                                   size_t depth, bool fresh) {
  F16 sums[M][V];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[m][v] = fresh ? splat(0) : load(c + m * ldc + 16 * v);
  }
  for (size_t k = 0; k < depth; ++k) {
    F16 row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) row[v] = load(b + 16 * v);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const F16 factor = splat(a[m * rowA]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[m][v] = fma(factor, row[v], sums[m][v]);
    }
    a += stepA;
    b += ldb;
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store(c + m * ldc + 16 * v, sums[m][v]);
  }
}

template <int V>
SPILLWAY_BODY void productRows(size_t rows, const float* a, size_t rowA, size_t stepA,
                               const float* b, size_t ldb, float* c, size_t ldc, size_t depth,
                               bool fresh) {
  for (; rows >= 6; rows -= 6, a += 6 * rowA, c += 6 * ldc) {
    productBlock<6, V>(a, rowA, stepA, b, ldb, c, ldc, depth, fresh);
  }
  switch (rows) {
    case 5:
      return productBlock<5, V>(a, rowA, stepA, b, ldb, c, ldc, depth, fresh);
    case 4:
      return productBlock<4, V>(a, rowA, stepA, b, ldb, c, ldc, depth, fresh);
    case 3:
      return productBlock<3, V>(a, rowA, stepA, b, ldb, c, ldc, depth, fresh);
    case 2:
      return productBlock<2, V>(a, rowA, stepA, b, ldb, c, ldc, depth, fresh);
    case 1:
      return productBlock<1, V>(a, rowA, stepA, b, ldb, c, ldc, depth, fresh);
    default:
      return;
  }
}

// C [rows][16·vectors] (+)= A [rows][depth]·B [depth][16·vectors]; `fresh` sets C.
SPILLWAY_BODY void tileProduct(size_t rows, size_t vectors, size_t depth, const float* a,
                               size_t rowA, size_t stepA, const float* b, size_t ldb, float* c,
                               size_t ldc, bool fresh) {
  constexpr int kVectors = SPILLWAY_TILE_VECTORS(SPILLWAY_SIMD);
  for (; vectors >= kVectors; vectors -= kVectors, b += 16 * kVectors, c += 16 * kVectors) {
    productRows<kVectors>(rows, a, rowA, stepA, b, ldb, c, ldc, depth, fresh);
  }
  if (kVectors > 2 && vectors >= 2) {
    productRows<2>(rows, a, rowA, stepA, b, ldb, c, ldc, depth, fresh);
    vectors -= 2, b += 32, c += 32;
  }
  if (vectors > 0) productRows<1>(rows, a, rowA, stepA, b, ldb, c, ldc, depth, fresh);
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

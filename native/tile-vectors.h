// How many vectors of 16 floats a row of tile-product.h's register block has: 6 rows of them fill
// the registers (32 of 16 floats with AVX-512, 16 of 8 with AVX2).
#pragma once

namespace spillway {

constexpr int kTileVectors_avx512 = 4;
constexpr int kTileVectors_avx2 = 1;
constexpr int kTileVectors_portable = 1;

}  // namespace spillway

#define SPILLWAY_JOIN(a, b) a##b
#define SPILLWAY_TILE_VECTORS(set) SPILLWAY_JOIN(kTileVectors_, set)

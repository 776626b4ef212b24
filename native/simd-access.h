// Loads and stores of up to sixteen elements by element type, and loops over them. Included after
// simd.h by a body file, once per instruction set, hence no #pragma once.
namespace spillway {
namespace SPILLWAY_SIMD {

// `n` lanes, 1..16; bytes become int32 lanes.
SPILLWAY_BODY F16 get(const float* p, size_t n) { return n == 16 ? load(p) : loadPart(p, n); }
SPILLWAY_BODY I16 get(const int32_t* p, size_t n) { return n == 16 ? load(p) : loadPart(p, n); }
SPILLWAY_BODY I16 get(const uint8_t* p, size_t n) { return loadBytes(p, n); }
SPILLWAY_BODY void put(float* p, F16 x, size_t n) { n == 16 ? store(p, x) : storePart(p, x, n); }
SPILLWAY_BODY void put(int32_t* p, I16 x, size_t n) { n == 16 ? store(p, x) : storePart(p, x, n); }
SPILLWAY_BODY void put(uint8_t* p, M16 m, size_t n) { storeMask(p, m, n); }

SPILLWAY_BODY F16 splatAs(float x) { return splat(x); }
SPILLWAY_BODY I16 splatAs(int32_t x) { return splatI(x); }
SPILLWAY_BODY I16 splatAs(uint8_t x) { return splatI(x); }

// piece(i, n) for i = begin, begin + 16, …, with n = 16 but for the last.
template <class Piece>
SPILLWAY_BODY void forLanes(size_t begin, size_t end, Piece piece) {
  size_t i = begin;
  for (; i + 16 <= end; i += 16) piece(i, size_t{16});
  if (i < end) piece(i, end - i);
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

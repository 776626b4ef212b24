#include "crc32c.h"

#include <cstring>

#if SPILLWAY_X86
#include <nmmintrin.h>
#endif

namespace spillway {
namespace {

// The polynomial 0x1EDC6F41, bits reversed.
constexpr uint32_t kPolynomial = 0x82F63B78u;

// Bytes per lane of the three-way loop: the instruction has a latency of 3 and a throughput of 1
// cycle, so three independent streams keep it busy. 1 KiB per lane makes the two shifts that join
// the streams (8 table look-ups) cost under 3 %.
constexpr size_t kLaneBytes = 1024;

struct Tables {
  // bytes[k][b]: the register after byte b and k zero bytes.
  uint32_t bytes[8][256];
  // shift[k][b]: byte k of a register, valued b, moved past kLaneBytes zero bytes.
  uint32_t shift[4][256];

  Tables() {
    for (uint32_t value = 0; value < 256; ++value) {
      uint32_t crc = value;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
      bytes[0][value] = crc;
    }
    for (size_t k = 1; k < 8; ++k) {
      for (size_t value = 0; value < 256; ++value) {
        const uint32_t last = bytes[k - 1][value];
        bytes[k][value] = (last >> 8) ^ bytes[0][last & 0xFF];
      }
    }
    for (size_t k = 0; k < 4; ++k) {
      for (uint32_t value = 0; value < 256; ++value) {
        uint32_t crc = value << (8 * k);
        for (size_t i = 0; i < kLaneBytes; ++i) crc = (crc >> 8) ^ bytes[0][crc & 0xFF];
        shift[k][value] = crc;
      }
    }
  }
};

const Tables& tables() {
  static const Tables value;
  return value;
}

uint32_t crcTables(const uint8_t* bytes, size_t length, uint32_t crc) {
  const Tables& t = tables();
  for (; length >= 8; bytes += 8, length -= 8) {
    uint32_t low, high;
    std::memcpy(&low, bytes, 4);
    std::memcpy(&high, bytes + 4, 4);
    low ^= crc;  // little-endian, as both supported architectures are
    crc = t.bytes[7][low & 0xFF] ^ t.bytes[6][(low >> 8) & 0xFF] ^ t.bytes[5][(low >> 16) & 0xFF] ^
          t.bytes[4][low >> 24] ^ t.bytes[3][high & 0xFF] ^ t.bytes[2][(high >> 8) & 0xFF] ^
          t.bytes[1][(high >> 16) & 0xFF] ^ t.bytes[0][high >> 24];
  }
  for (; length > 0; ++bytes, --length) crc = (crc >> 8) ^ t.bytes[0][(crc ^ *bytes) & 0xFF];
  return crc;
}

#if SPILLWAY_X86
inline uint64_t load64(const uint8_t* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

inline uint32_t shiftLane(const Tables& t, uint32_t crc) {
  return t.shift[0][crc & 0xFF] ^ t.shift[1][(crc >> 8) & 0xFF] ^ t.shift[2][(crc >> 16) & 0xFF] ^
         t.shift[3][crc >> 24];
}

__attribute__((target("sse4.2"))) uint32_t crcSse42(const uint8_t* bytes, size_t length,
                                                    uint32_t crc) {
  const Tables& t = tables();
  uint64_t a = crc;
  for (; length >= 3 * kLaneBytes; bytes += 3 * kLaneBytes, length -= 3 * kLaneBytes) {
    uint64_t b = 0, c = 0;
    for (size_t i = 0; i < kLaneBytes; i += 8) {
      a = _mm_crc32_u64(a, load64(bytes + i));
      b = _mm_crc32_u64(b, load64(bytes + kLaneBytes + i));
      c = _mm_crc32_u64(c, load64(bytes + 2 * kLaneBytes + i));
    }
    b ^= shiftLane(t, static_cast<uint32_t>(a));
    a = c ^ shiftLane(t, static_cast<uint32_t>(b));
  }
  for (; length >= 8; bytes += 8, length -= 8) a = _mm_crc32_u64(a, load64(bytes));
  uint32_t rest = static_cast<uint32_t>(a);
  for (; length > 0; ++bytes, --length) rest = _mm_crc32_u8(rest, *bytes);
  return rest;
}
#endif

// crc32c(bytes: Uint8Array, seed?: number): number
napi_value crc32cExport(napi_env env, napi_callback_info info) {
  Arguments<2> arguments;
  Span<uint8_t> bytes;
  uint32_t seed = 0;
  if (!arguments.read(env, info) || !getSpan(env, arguments[0], "bytes", &bytes)) return nullptr;
  if (!isUndefined(env, arguments[1]) &&
      napi_get_value_uint32(env, arguments[1], &seed) != napi_ok) {
    throwTypeError(env, "seed must be a number");
    return nullptr;
  }
  napi_value result = nullptr;
  napi_create_uint32(env, crc32c(bytes.data, bytes.length, seed), &result);
  return result;
}

}  // namespace

uint32_t crc32c(const uint8_t* bytes, size_t length, uint32_t crc) {
#if SPILLWAY_X86
  if (currentIsa() != Isa::portable) return ~crcSse42(bytes, length, ~crc);
#endif
  return ~crcTables(bytes, length, ~crc);
}

void registerCrc32c(napi_env env, napi_value exports) {
  exportFunction(env, exports, "crc32c", crc32cExport);
}

}  // namespace spillway

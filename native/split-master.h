// The exact split of a float32 master weight into bf16 and its low 16 bits.
//
// param = (bits + 0x8000) >> 16 (nearest, ties away from zero), masterLo = low 16 bits, and
// bits = (param << 16) + int16(masterLo) mod 2^32; NaN becomes 0x7FC00000 first, since rounding a
// NaN could carry into infinity.
#pragma once

#include "isa.h"

namespace spillway {

SPILLWAY_BODY uint32_t joinBits(uint16_t param, uint16_t low) {
  return (static_cast<uint32_t>(param) << 16) +
         static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(low)));
}

// A mask and no conditional: gcc would turn that into a branch and give up vectorising. The
// comparison is one of signed numbers, which AVX2 has.
SPILLWAY_BODY uint32_t splittableBits(uint32_t bits) {
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7FFFFFFFu);
  const uint32_t isNan = 0u - static_cast<uint32_t>(magnitude > 0x7F800000);
  return (bits & ~isNan) | (0x7FC00000u & isNan);
}

SPILLWAY_BODY uint16_t splitHigh(uint32_t bits) {
  return static_cast<uint16_t>((bits + 0x8000u) >> 16);
}

// Exports splitMaster and joinMaster.
void registerSplitMaster(napi_env env, napi_value exports);

}  // namespace spillway

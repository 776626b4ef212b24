// JavaScript's conversion of a number to the elements of a typed array.
#pragma once

#include <cmath>
#include <cstdint>

#include "isa.h"

namespace spillway {

// ECMAScript ToInt32: truncates, wraps modulo 2^32; NaN and infinities give 0.
SPILLWAY_BODY int32_t scriptInt(double x) {
  if (x > -2147483649.0 && x < 2147483648.0) return static_cast<int32_t>(x);
  if (x != x || x - x != 0) return 0;
  const double wrapped = __builtin_fmod(__builtin_trunc(x), 4294967296.0);
  return static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(wrapped)));
}

SPILLWAY_BODY void assignScript(float* target, double x) { *target = static_cast<float>(x); }
SPILLWAY_BODY void assignScript(int32_t* target, double x) { *target = scriptInt(x); }
SPILLWAY_BODY void assignScript(uint8_t* target, double x) {
  *target = static_cast<uint8_t>(scriptInt(x));
}

}  // namespace spillway

#include "casts.h"

namespace spillway {
namespace {

SPILLWAY_BODY void bf16ToF32Body(const uint16_t* __restrict source, uint32_t* __restrict target,
                                 size_t length) {
  for (size_t i = 0; i < length; ++i) target[i] = static_cast<uint32_t>(source[i]) << 16;
}

SPILLWAY_BODY void f32ToBf16Body(const uint32_t* __restrict source, uint16_t* __restrict target,
                                 size_t length) {
  for (size_t i = 0; i < length; ++i) {
    const uint32_t bits = source[i];
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quieted = (bits >> 16) | 0x40u;
    target[i] = static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quieted : rounded);
  }
}

SPILLWAY_BODY void f16ToF32Body(const uint16_t* __restrict source, uint32_t* __restrict target,
                                size_t length) {
  for (size_t i = 0; i < length; ++i) {
    const uint32_t half = source[i];
    const uint32_t sign = (half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7FFFu;
    // Exponent bias 15 becomes 127; infinity and NaN keep their mantissa, NaN is quieted.
    const uint32_t normal = (magnitude << 13) + (112u << 23);
    const uint32_t special = 0x7F800000u | (magnitude << 13) | (magnitude > 0x7C00u ? 0x400000u : 0);
    // A subnormal is magnitude * 2^-24, exact in float32.
    const uint32_t subnormal =
        bitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
    const uint32_t finite = magnitude < 0x400u ? subnormal : normal;
    target[i] = sign | (magnitude >= 0x7C00u ? special : finite);
  }
}

SPILLWAY_BODY void f32ToF16Body(const uint32_t* __restrict source, uint16_t* __restrict target,
                                size_t length) {
  for (size_t i = 0; i < length; ++i) {
    const uint32_t bits = source[i];
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t normal =
        (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
    // Below 2^-14 the target's spacing is 2^-24: adding 0.5, whose spacing is 2^-24 too, rounds
    // to nearest even in the adder.
    const uint32_t subnormal = bitsOf(floatOf(magnitude) + 0.5f) - 0x3F000000u;
    const uint32_t special =
        0x7C00u | (magnitude > 0x7F800000u ? 0x200u | ((magnitude >> 13) & 0x3FFu) : 0u);
    // From 65520 on, the nearest half is infinity.
    const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    target[i] = static_cast<uint16_t>(sign | (magnitude >= 0x477FF000u ? special : finite));
  }
}

}  // namespace

SPILLWAY_VERSIONS(bf16ToF32, (const uint16_t* source, uint32_t* target, size_t length),
                  (source, target, length))
SPILLWAY_VERSIONS(f16ToF32, (const uint16_t* source, uint32_t* target, size_t length),
                  (source, target, length))

namespace {

SPILLWAY_VERSIONS(f32ToBf16, (const uint32_t* source, uint16_t* target, size_t length),
                  (source, target, length))
SPILLWAY_VERSIONS(f32ToF16, (const uint32_t* source, uint16_t* target, size_t length),
                  (source, target, length))

// (source: Uint16Array, target: Float32Array): void
template <void (*kernel)(const uint16_t*, uint32_t*, size_t)>
napi_value widen(napi_env env, napi_callback_info info) {
  Arguments<2> arguments;
  Span<uint16_t> source;
  Span<float> target;
  if (arguments.read(env, info) && getSpan(env, arguments[0], "source", &source) &&
      getSpan(env, arguments[1], "target", &target) &&
      checkLength(env, "target", target.length, source.length)) {
    kernel(source.data, bitsOf(target.data), source.length);
  }
  return nullptr;
}

// (source: Float32Array, target: Uint16Array): void
template <void (*kernel)(const uint32_t*, uint16_t*, size_t)>
napi_value narrow(napi_env env, napi_callback_info info) {
  Arguments<2> arguments;
  Span<float> source;
  Span<uint16_t> target;
  if (arguments.read(env, info) && getSpan(env, arguments[0], "source", &source) &&
      getSpan(env, arguments[1], "target", &target) &&
      checkLength(env, "target", target.length, source.length)) {
    kernel(bitsOf(source.data), target.data, source.length);
  }
  return nullptr;
}

}  // namespace

void registerCasts(napi_env env, napi_value exports) {
  exportFunction(env, exports, "bf16ToF32", widen<bf16ToF32>);
  exportFunction(env, exports, "f32ToBf16", narrow<f32ToBf16>);
  exportFunction(env, exports, "f16ToF32", widen<f16ToF32>);
  exportFunction(env, exports, "f32ToF16", narrow<f32ToF16>);
}

}  // namespace spillway

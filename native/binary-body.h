// Elementwise kernels of two operands with broadcasting. See binary.cc.
#include "simd.h"
#include "simd-math.h"
#include "simd-access.h"

namespace spillway {
namespace SPILLWAY_SIMD {

template <class In, class Out, class Operation>
struct BinaryRows {
  static void both(const void* a, const void* b, void* out, size_t count) {
    forLanes(0, count, [&](size_t i, size_t n) {
      const auto x = get(static_cast<const In*>(a) + i, n);
      put(static_cast<Out*>(out) + i, Operation::of(x, get(static_cast<const In*>(b) + i, n)), n);
    });
  }
  static void aMoves(const void* a, const void* b, void* out, size_t count) {
    const auto y = splatAs(*static_cast<const In*>(b));
    forLanes(0, count, [&](size_t i, size_t n) {
      put(static_cast<Out*>(out) + i, Operation::of(get(static_cast<const In*>(a) + i, n), y), n);
    });
  }
  static void bMoves(const void* a, const void* b, void* out, size_t count) {
    const auto x = splatAs(*static_cast<const In*>(a));
    forLanes(0, count, [&](size_t i, size_t n) {
      put(static_cast<Out*>(out) + i, Operation::of(x, get(static_cast<const In*>(b) + i, n)), n);
    });
  }
};

#define SPILLWAY_BINARY(name, In, Out, expression)                   \
  struct name##Operation {                                           \
    template <class V>                                               \
    static SPILLWAY_BODY auto of(V a, V b) {                         \
      return expression;                                             \
    }                                                                \
  };                                                                 \
  void name(KernelCall& call) {                                      \
    using Rows = BinaryRows<In, Out, name##Operation>;               \
    runRows(call, sizeof(In), sizeof(Out), {Rows::both, Rows::aMoves, Rows::bMoves}); \
  }

SPILLWAY_BINARY(addFloat, float, float, a + b)
SPILLWAY_BINARY(subFloat, float, float, a - b)
SPILLWAY_BINARY(mulFloat, float, float, a * b)
SPILLWAY_BINARY(divFloat, float, float, a / b)
SPILLWAY_BINARY(maximumFloat, float, float, maxNan(a, b))
SPILLWAY_BINARY(minimumFloat, float, float, minNan(a, b))
SPILLWAY_BINARY(powFloat, float, float, pow(a, b))
SPILLWAY_BINARY(squaredDifferenceFloat, float, float, (a - b) * (a - b))
SPILLWAY_BINARY(addInt, int32_t, int32_t, a + b)
SPILLWAY_BINARY(subInt, int32_t, int32_t, a - b)
SPILLWAY_BINARY(maximumInt, int32_t, int32_t, max(a, b))
SPILLWAY_BINARY(minimumInt, int32_t, int32_t, min(a, b))

#define SPILLWAY_COMPARISON(name, operation)                     \
  SPILLWAY_BINARY(name##Float, float, uint8_t, operation(a, b))  \
  SPILLWAY_BINARY(name##Int, int32_t, uint8_t, operation(a, b))  \
  SPILLWAY_BINARY(name##Bool, uint8_t, uint8_t, operation(a, b))

SPILLWAY_COMPARISON(equal, eq)
SPILLWAY_COMPARISON(notEqual, ne)
SPILLWAY_COMPARISON(less, lt)
SPILLWAY_COMPARISON(lessEqual, le)
SPILLWAY_COMPARISON(greater, gt)
SPILLWAY_COMPARISON(greaterEqual, ge)
SPILLWAY_BINARY(logicalAndBool, uint8_t, uint8_t, ne(a, splatI(0)) & ne(b, splatI(0)))
SPILLWAY_BINARY(logicalOrBool, uint8_t, uint8_t, ne(a, splatI(0)) | ne(b, splatI(0)))

#undef SPILLWAY_COMPARISON
#undef SPILLWAY_BINARY

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

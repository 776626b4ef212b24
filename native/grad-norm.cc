#include "grad-norm.h"

namespace spillway {
namespace {

// Accumulators per leaf: element i goes to lane i mod 16 and lanes are added in ascending order,
// so that the sum is the same whatever the vector width.
constexpr size_t kLanes = 16;

SPILLWAY_BODY double leafSum(const float* __restrict values, size_t length) {
  double lanes[kLanes] = {};
  size_t start = 0;
  for (; start + kLanes <= length; start += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[start + lane];
      lanes[lane] += value * value;
    }
  }
  for (size_t lane = 0; start + lane < length; ++lane) {
    const double value = values[start + lane];
    lanes[lane] += value * value;
  }
  double sum = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}

SPILLWAY_BODY void squaredNormLeavesBody(const float* __restrict values, double* __restrict leaves,
                                         size_t length) {
  for (size_t start = 0; start < length; start += kNormLeafElements) {
    const size_t rest = length - start;
    leaves[start / kNormLeafElements] =
        leafSum(values + start, rest < kNormLeafElements ? rest : kNormLeafElements);
  }
}

SPILLWAY_VERSIONS(squaredNormLeaves, (const float* values, double* leaves, size_t length),
                  (values, leaves, length))

// squaredNormLeaves(values: Float32Array, leaves: Float64Array): void
napi_value squaredNormLeavesExport(napi_env env, napi_callback_info info) {
  Arguments<2> arguments;
  Span<float> values;
  Span<double> leaves;
  if (arguments.read(env, info) && getSpan(env, arguments[0], "values", &values) &&
      getSpan(env, arguments[1], "leaves", &leaves) &&
      checkLength(env, "leaves", leaves.length,
                  (values.length + kNormLeafElements - 1) / kNormLeafElements)) {
    squaredNormLeaves(values.data, leaves.data, values.length);
  }
  return nullptr;
}

}  // namespace

void registerGradNorm(napi_env env, napi_value exports) {
  exportFunction(env, exports, "squaredNormLeaves", squaredNormLeavesExport);
}

}  // namespace spillway

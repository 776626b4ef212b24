// Elementwise kernels of two operands, with broadcasting.
//
// What is rare (integer products and powers, remainders, arithmetic on bool) is computed as
// JavaScript does, one element at a time: in double, then converted to the output's type.
#include "binary-rows.h"
#include "script-number.h"
#define SPILLWAY_BODY_FILE "binary-body.h"
#include "simd-targets.h"

namespace spillway {

SPILLWAY_KERNEL_PER_ISA(addFloat)
SPILLWAY_KERNEL_PER_ISA(subFloat)
SPILLWAY_KERNEL_PER_ISA(mulFloat)
SPILLWAY_KERNEL_PER_ISA(divFloat)
SPILLWAY_KERNEL_PER_ISA(maximumFloat)
SPILLWAY_KERNEL_PER_ISA(minimumFloat)
SPILLWAY_KERNEL_PER_ISA(powFloat)
SPILLWAY_KERNEL_PER_ISA(squaredDifferenceFloat)
SPILLWAY_KERNEL_PER_ISA(addInt)
SPILLWAY_KERNEL_PER_ISA(subInt)
SPILLWAY_KERNEL_PER_ISA(maximumInt)
SPILLWAY_KERNEL_PER_ISA(minimumInt)

#define SPILLWAY_COMPARISON(name)      \
  SPILLWAY_KERNEL_PER_ISA(name##Float) \
  SPILLWAY_KERNEL_PER_ISA(name##Int)   \
  SPILLWAY_KERNEL_PER_ISA(name##Bool)

SPILLWAY_COMPARISON(equal)
SPILLWAY_COMPARISON(notEqual)
SPILLWAY_COMPARISON(less)
SPILLWAY_COMPARISON(lessEqual)
SPILLWAY_COMPARISON(greater)
SPILLWAY_COMPARISON(greaterEqual)
SPILLWAY_KERNEL_PER_ISA(logicalAndBool)
SPILLWAY_KERNEL_PER_ISA(logicalOrBool)

namespace {

double floorQuotient(double a, double b) { return std::floor(a / b); }

// tfjs's Mod: the sign of the divisor, except where both are not negative or both negative.
double modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if ((a < 0 && b < 0) || (a >= 0 && b >= 0)) return rest;
  return std::fmod(rest + b, b);
}

double scriptPow(double a, double b) { return portable::powOfScript(a, b); }
double add(double a, double b) { return a + b; }
double subtract(double a, double b) { return a - b; }
double multiply(double a, double b) { return a * b; }
double divide(double a, double b) { return a / b; }
double larger(double a, double b) { return a > b ? a : b; }
double smaller(double a, double b) { return a < b ? a : b; }
double squaredDifference(double a, double b) { return (a - b) * (a - b); }

template <class In, class Out, double (*operation)(double, double), size_t aStep, size_t bStep>
void scriptRow(const void* a, const void* b, void* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(static_cast<const In*>(a)[i * aStep]);
    const double y = static_cast<double>(static_cast<const In*>(b)[i * bStep]);
    assignScript(static_cast<Out*>(out) + i, operation(x, y));
  }
}

template <class In, class Out, double (*operation)(double, double)>
void runScript(KernelCall& call) {
  runRows(call, sizeof(In), sizeof(Out),
          {scriptRow<In, Out, operation, 1, 1>, scriptRow<In, Out, operation, 1, 0>,
           scriptRow<In, Out, operation, 0, 1>});
}

}  // namespace

#define SPILLWAY_SCRIPT(name, In, Out, operation) \
  SPILLWAY_KERNEL(name) { runScript<In, Out, operation>(call); }

SPILLWAY_SCRIPT(modFloat, float, float, modulo)
SPILLWAY_SCRIPT(floorDivFloat, float, int32_t, floorQuotient)
SPILLWAY_SCRIPT(mulInt, int32_t, int32_t, multiply)
SPILLWAY_SCRIPT(divInt, int32_t, int32_t, divide)
SPILLWAY_SCRIPT(powInt, int32_t, int32_t, scriptPow)
SPILLWAY_SCRIPT(modInt, int32_t, int32_t, modulo)
SPILLWAY_SCRIPT(floorDivInt, int32_t, int32_t, floorQuotient)
SPILLWAY_SCRIPT(squaredDifferenceInt, int32_t, int32_t, squaredDifference)
SPILLWAY_SCRIPT(addBool, uint8_t, uint8_t, add)
SPILLWAY_SCRIPT(subBool, uint8_t, uint8_t, subtract)
SPILLWAY_SCRIPT(mulBool, uint8_t, uint8_t, multiply)
SPILLWAY_SCRIPT(divBool, uint8_t, uint8_t, divide)
SPILLWAY_SCRIPT(powBool, uint8_t, uint8_t, scriptPow)
SPILLWAY_SCRIPT(modBool, uint8_t, uint8_t, modulo)
SPILLWAY_SCRIPT(floorDivBool, uint8_t, int32_t, floorQuotient)
SPILLWAY_SCRIPT(maximumBool, uint8_t, uint8_t, larger)
SPILLWAY_SCRIPT(minimumBool, uint8_t, uint8_t, smaller)
SPILLWAY_SCRIPT(squaredDifferenceBool, uint8_t, uint8_t, squaredDifference)

}  // namespace spillway

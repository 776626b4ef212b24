// e^x for softmax, once per instruction set: float32 throughout, within 2 ulp on [-87, 88], 0 below
// and NaN for NaN. Kernels with a public formula use simd-math.h, which is closer and slower; here
// the errors of the scores are larger than those of the exponential.
//
// Argument reduction by ln 2 in two parts and a polynomial of degree 7, after Cephes' expf.
namespace spillway {
namespace SPILLWAY_SIMD {

SPILLWAY_BODY F16 expFast(F16 x) {
  const F16 n = round(x * splat(1.44269504088896341f));
  const F16 r = fnma(n, splat(-2.12194440e-4f), fnma(n, splat(0.693359375f), x));
  F16 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r + splat(1));
  const F16 power = fromBits(shiftLeft<23>(toInt(n) + splatI(127)));
  return select(lt(x, splat(-87)), splat(0), p * power);
}

// 1/(1 + e^-x), 0 below -88: what gelu_new (tanh is 2·sigmoid(2u) - 1) and SwiGLU are made of.
SPILLWAY_BODY F16 sigmoidFast(F16 x) {
  const F16 power = select(lt(x, splat(-88)), splat(INFINITY), expFast(neg(x)));
  return splat(1) / (splat(1) + power);
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

// Elementary functions on sixteen lanes, and sums and maxima of arrays. Included after simd.h by a
// body file, once per instruction set, hence no #pragma once.
//
// One formula per function, of IEEE operations and explicit fma: the same bits on every instruction
// set. Coefficients are minimax fits (Remez) of the remainder behind the exact leading terms.
// Largest errors found against float80 over four million bit patterns, in units in the last place
// (test/device/native-elementwise.test.ts holds them):
//
//   exp 1.0    expm1 1.4   log 0.8   log1p 1.5   tanh 1.3   sigmoid 2.2   softplus 1.9
//   erf 1.1    sin cos 1.6    pow 0.501    rsqrt 1.5      (denormal results included)
//
// sin and cos: beyond 2^30 the C library's double functions, lane by lane. pow follows JavaScript:
// pow(±1, ±infinity) and pow(1, NaN) are NaN.
namespace spillway {
namespace SPILLWAY_SIMD {

// Bit patterns of NaN lanes survive in neither argument order: NaN if either is NaN.
SPILLWAY_BODY F16 maxNan(F16 x, F16 y) { return select(ne(x, x), x, max(x, y)); }
SPILLWAY_BODY F16 minNan(F16 x, F16 y) { return select(ne(x, x), x, min(x, y)); }

SPILLWAY_BODY I16 signBits(F16 x) { return bits(x) & splatI(INT32_MIN); }
// `magnitude`, which is not negative, with the sign of `sign`'s bits.
SPILLWAY_BODY F16 withSign(F16 magnitude, I16 sign) { return fromBits(bits(magnitude) | sign); }

// e^x = 2^n * e^r, |r| <= ln(2)/2; e^r = 1 + r + r^2 q(r).
SPILLWAY_BODY F16 expTail(F16 r) {
  F16 q = splat(1.991992176e-04f);
  q = fma(q, r, splat(1.394721214e-03f));
  q = fma(q, r, splat(8.333261125e-03f));
  q = fma(q, r, splat(4.166625440e-02f));
  q = fma(q, r, splat(1.666666716e-01f));
  return fma(q, r, splat(0.5f));
}
SPILLWAY_BODY F16 expReduce(F16 x, F16* n) {
  // Beyond these e^x is infinity or zero; NaN passes both.
  x = min(splat(89.0f), max(splat(-104.0f), x));
  *n = round(x * splat(1.44269504f));
  const F16 r = fnma(*n, splat(0.693145751953125f), x);
  return fnma(*n, splat(1.42860677e-06f), r);
}
SPILLWAY_BODY F16 exp(F16 x) {
  F16 n;
  const F16 r = expReduce(x, &n);
  return scale(fma(r * r, expTail(r), r) + splat(1.0f), n);
}
// e^x - 1 = 2^n (e^r - 1) + (2^n - 1).
SPILLWAY_BODY F16 expm1(F16 x) {
  F16 n;
  const F16 r = expReduce(x, &n);
  const F16 tail = fma(r * r, expTail(r), r);
  const F16 power = scale(splat(1.0f), n);
  const F16 result = fma(power, tail, power - splat(1.0f));
  // 2^128 is no float32, but e^x may be; and -0 stays -0.
  const F16 large = scale(tail + splat(1.0f), n);
  return select(gt(n, splat(30.0f)), large, select(eq(x, splat(0.0f)), x, result));
}

// x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for x positive and finite (denormals too).
SPILLWAY_BODY F16 splitLog(F16 x, F16* e) {
  const M16 tiny = lt(x, splat(1.17549435e-38f));
  const I16 whole = bits(select(tiny, x * splat(8388608.0f), x)) - splatI(0x3F3504F3);
  *e = toFloat(shiftRight<23>(whole)) - select(tiny, splat(23.0f), splat(0.0f));
  return fromBits((whole & splatI(0x007FFFFF)) + splatI(0x3F3504F3));
}
// The values of log outside the positive finite numbers.
SPILLWAY_BODY F16 logEdges(F16 x, F16 result) {
  const F16 infinity = splat(__builtin_inff());
  result = select(eq(x, infinity), infinity, result);
  result = select(eq(x, splat(0.0f)), neg(infinity), result);
  return select(ge(x, splat(0.0f)), result, splat(__builtin_nanf("")));
}
// log(1 + f) = f - f^2/2 + f^3 q(f).
SPILLWAY_BODY F16 log(F16 x) {
  F16 e;
  const F16 f = splitLog(x, &e) - splat(1.0f);
  F16 q = splat(6.915552169e-02f);
  q = fma(q, f, splat(-1.178988442e-01f));
  q = fma(q, f, splat(1.187293008e-01f));
  q = fma(q, f, splat(-1.238433197e-01f));
  q = fma(q, f, splat(1.421866268e-01f));
  q = fma(q, f, splat(-1.666925251e-01f));
  q = fma(q, f, splat(2.000222653e-01f));
  q = fma(q, f, splat(-2.499998659e-01f));
  q = fma(q, f, splat(3.333331048e-01f));
  const F16 square = f * f;
  F16 tail = fma(f, q, splat(-0.5f)) * square;
  tail = fma(e, splat(1.42860677e-06f), tail);
  return logEdges(x, fma(e, splat(0.693145751953125f), f + tail));
}
// log(1 + x) = log(u) + c, u the rounded 1 + x, c = (x - (u - 1)) / u.
SPILLWAY_BODY F16 log1p(F16 x) {
  const F16 one = splat(1.0f);
  const F16 u = one + x;
  // x - (u - 1) is exact where it matters: u - 1 is exact, and close to x, or c vanishes.
  const F16 lost = select(gt(x, one), one - (u - x), x - (u - one));
  const F16 result = log(u) + lost / u;
  const M16 plain = lt(u, splat(__builtin_inff())) & gt(u, splat(0.0f));
  return select(eq(u, one), x, select(plain, result, log(u)));
}

SPILLWAY_BODY F16 tanh(F16 x) {
  const F16 a = abs(x);
  const F16 u = a * a;
  F16 q = splat(2.147540450e-03f);
  q = fma(q, u, splat(-8.182678372e-03f));
  q = fma(q, u, splat(2.170296945e-02f));
  q = fma(q, u, splat(-5.394720286e-02f));
  q = fma(q, u, splat(1.333321035e-01f));
  q = fma(q, u, splat(-3.333333135e-01f));
  const F16 small = fma(a * u, q, a);
  const F16 large = splat(1.0f) - splat(2.0f) / (exp(a + a) + splat(1.0f));
  return withSign(select(lt(a, splat(0.625f)), small, large), signBits(x));
}

// 1 / (1 + e^-x), by e^-|x| so that nothing overflows.
SPILLWAY_BODY F16 sigmoid(F16 x) {
  const F16 e = exp(neg(abs(x)));
  return select(lt(x, splat(0.0f)), e, splat(1.0f)) / (splat(1.0f) + e);
}

// log(1 + e^x).
SPILLWAY_BODY F16 softplus(F16 x) {
  return max(splat(0.0f), x) + log1p(exp(neg(abs(x))));
}

// x + x q(x^2) below 1; 1 - e^g(x) from there to 4, where float32 has only 1.
SPILLWAY_BODY F16 erf(F16 x) {
  const F16 a = abs(x);
  const F16 u = a * a;
  F16 q = splat(-9.680140465e-06f);
  q = fma(q, u, splat(1.127054566e-04f));
  q = fma(q, u, splat(-8.484711871e-04f));
  q = fma(q, u, splat(5.221074913e-03f));
  q = fma(q, u, splat(-2.686544508e-02f));
  q = fma(q, u, splat(1.128378287e-01f));
  q = fma(q, u, splat(-3.761263788e-01f));
  q = fma(q, u, splat(1.283791661e-01f));
  const F16 small = fma(a, q, a);
  const F16 b = min(splat(4.0f), a);
  F16 g = splat(-2.138084346e-05f);
  g = fma(g, b, splat(4.377676814e-04f));
  g = fma(g, b, splat(-4.187083803e-03f));
  g = fma(g, b, splat(2.516164072e-02f));
  g = fma(g, b, splat(-1.083454117e-01f));
  g = fma(g, b, splat(-6.332874894e-01f));
  g = fma(g, b, splat(-1.129544377e+00f));
  g = fma(g, b, splat(1.808014495e-04f));
  const F16 large = splat(1.0f) - exp(g);
  return withSign(select(lt(a, splat(1.0f)), small, large), signBits(x));
}

SPILLWAY_BODY F16 rsqrt(F16 x) { return splat(1.0f) / sqrt(x); }

// sin (quarter 0) or cos (quarter 1) of a >= 0: a = n pi/2 + r in double, |r| <= pi/4.
SPILLWAY_BODY F16 sinOfQuarter(F16 a, int32_t quarter) {
  const D16 wide = widen(a);
  const D16 n = round(wide * splatD(0.6366197723675814));
  const D16 near = fnma(n, splatD(1.5707963267948966), wide);
  const D16 rest = fnma(n, splatD(6.123233995736766e-17), near);
  const I16 which = toIntRound(n) + splatI(quarter);
  const F16 r = narrow(rest);
  const F16 u = r * r;
  F16 s = splat(2.718237283e-06f);
  s = fma(s, u, splat(-1.983932743e-04f));
  s = fma(s, u, splat(8.333329111e-03f));
  s = fma(s, u, splat(-1.666666716e-01f));
  const F16 sine = fma(r * u, s, r);
  F16 c = splat(-2.720954626e-07f);
  c = fma(c, u, splat(2.479951218e-05f));
  c = fma(c, u, splat(-1.388888340e-03f));
  c = fma(c, u, splat(4.166666791e-02f));
  const F16 cosine = fma(u * u, c, fma(u, splat(-0.5f), splat(1.0f)));
  const M16 odd = ne(which & splatI(1), splatI(0));
  return fromBits(bits(select(odd, cosine, sine)) ^ shiftLeft<30>(which & splatI(2)));
}

// `result` with the lanes of `mask` replaced by function(x), through double.
template <class Function>
SPILLWAY_BODY F16 patchLanes(M16 mask, F16 x, F16 y, F16 result, Function function) {
  float xs[16], ys[16], results[16];
  uint8_t patch[16];
  store(xs, x);
  store(ys, y);
  store(results, result);
  storeMask(patch, mask, 16);
  for (int i = 0; i < 16; ++i) {
    if (patch[i]) results[i] = float(function(double(xs[i]), double(ys[i])));
  }
  return load(results);
}

SPILLWAY_BODY F16 sin(F16 x) {
  const F16 a = abs(x);
  const M16 near = le(a, splat(1073741824.0f));
  F16 result = sinOfQuarter(select(near, a, splat(0.0f)), 0);
  result = fromBits(bits(result) ^ signBits(x));
  if (all(near)) return result;
  return patchLanes(~near, x, x, result, [](double v, double) { return __builtin_sin(v); });
}
SPILLWAY_BODY F16 cos(F16 x) {
  const F16 a = abs(x);
  const M16 near = le(a, splat(1073741824.0f));
  const F16 result = sinOfQuarter(select(near, a, splat(0.0f)), 1);
  if (all(near)) return result;
  return patchLanes(~near, x, x, result, [](double v, double) { return __builtin_cos(v); });
}

// log and e^x in double, for float32 results: relative errors below 1e-14.
SPILLWAY_BODY D16 logD(F16 x) {
  F16 e;
  const D16 m = widen(splitLog(x, &e));
  const D16 one = splatD(1.0);
  const D16 s = (m - one) / (m + one);
  const D16 u = s * s;
  D16 q = splatD(0.16820131813269695);
  q = fma(q, u, splatD(0.18123617869802575));
  q = fma(q, u, splatD(0.22223372409593703));
  q = fma(q, u, splatD(0.2857141712019035));
  q = fma(q, u, splatD(0.400000000523284));
  q = fma(q, u, splatD(0.666666666665871));
  return fma(widen(e), splatD(0.6931471805599453), fma(s * u, q, s + s));
}
SPILLWAY_BODY D16 expD(D16 x) {
  const D16 clamped = min(splatD(200.0), max(splatD(-200.0), x));
  const D16 n = round(clamped * splatD(1.4426950408889634));
  D16 r = fnma(n, splatD(0.6931471805599453), clamped);
  r = fnma(n, splatD(2.3190468138462996e-17), r);
  D16 q = splatD(2.7637162612623136e-07);
  q = fma(q, r, splatD(2.763685689312015e-06));
  q = fma(q, r, splatD(2.480147373642186e-05));
  q = fma(q, r, splatD(0.00019841181044863882));
  q = fma(q, r, splatD(0.001388888896191437));
  q = fma(q, r, splatD(0.008333333373760148));
  q = fma(q, r, splatD(0.04166666666646512));
  q = fma(q, r, splatD(0.16666666666605656));
  q = fma(q, r, splatD(0.5000000000000017));
  return (fma(r * r, q, r) + splatD(1.0)) * exponentD(toIntRound(n));
}

SPILLWAY_BODY double powOfScript(double x, double y) {
  const double size = __builtin_fabs(x);
  if (y != y || (size == 1.0 && __builtin_isinf(y))) return __builtin_nan("");
  return __builtin_pow(x, y);
}
// e^(y log|x|) in double, and the sign of an odd power.
SPILLWAY_BODY F16 pow(F16 x, F16 y) {
  const F16 a = abs(x);
  const F16 zero = splat(0.0f);
  const F16 infinity = splat(__builtin_inff());
  const F16 half = y * splat(0.5f);
  const M16 whole = eq(floor(y), y);
  const M16 plain = gt(a, zero) & lt(a, infinity) & lt(abs(y), infinity);
  const F16 base = select(plain, a, splat(1.0f));
  const F16 power = select(plain, y, zero);
  F16 result = narrow(expD(widen(power) * logD(base)));
  const M16 odd = whole & ne(floor(half), half);
  result = fromBits(bits(result) | select(odd, signBits(x), splatI(0)));
  result = select(lt(x, zero) & ~whole, splat(__builtin_nanf("")), result);
  if (all(plain)) return result;
  return patchLanes(~plain, x, y, result, powOfScript);
}

// The sum of `count` float32 in double: lane i mod 16, each ascending, then the lanes ascending.
SPILLWAY_BODY double sumOf(const float* values, size_t count) {
  D16 lanes = splatD(0.0);
  size_t i = 0;
  for (; i + 16 <= count; i += 16) lanes = lanes + widen(load(values + i));
  if (i < count) lanes = lanes + widen(loadPart(values + i, count - i));
  return sumLanes(lanes);
}

// The largest lane; NaN if one is.
SPILLWAY_BODY float maxLanes(F16 x) {
  float lanes[16];
  store(lanes, x);
  float result = lanes[0];
  for (int i = 1; i < 16; ++i) {
    if (lanes[i] > result || lanes[i] != lanes[i]) result = lanes[i];
  }
  return result;
}
// The largest of `count` > 0 values; NaN if one is.
SPILLWAY_BODY float maxOf(const float* values, size_t count) {
  F16 lanes = splat(-__builtin_inff()), second = lanes;
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    lanes = maxNan(lanes, load(values + i));
    second = maxNan(second, load(values + i + 16));
  }
  if (i + 16 <= count) {
    lanes = maxNan(lanes, load(values + i));
    i += 16;
  }
  if (i < count) {
    const F16 rest = loadPart(values + i, count - i);
    lanes = select(firstLanes(count - i), maxNan(lanes, rest), lanes);
  }
  return maxLanes(maxNan(lanes, second));
}

}  // namespace SPILLWAY_SIMD
}  // namespace spillway

/**
 * @file The inputs of fixtures/adamw, from the same integer generator as its make.py.
 */
import { readFileSync } from 'node:fs';

import type { AdamwScalars } from '../../tiers/native/native-binding.js';

export interface AdamwCase {
  readonly name: string;
  readonly lr: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly eps: number;
  readonly weight_decay: number;
  readonly grad_scale: number;
  readonly param_exponents: readonly [number, number];
  readonly grad_exponents: readonly [number, number];
  /** Per step: base64 of param, exp_avg, exp_avg_sq for `short_length`. */
  readonly short: readonly (readonly [string, string, string])[];
  /** Per step: SHA-256 of the three arrays, one after the other, for `long_length`. */
  readonly long_sha256: readonly string[];
}

export interface AdamwFixture {
  readonly torch: string;
  readonly short_length: number;
  readonly long_length: number;
  readonly cases: readonly AdamwCase[];
}

/** Recorded by fixtures/adamw/make.py. */
export const adamwFixture = JSON.parse(
  readFileSync(new URL('../../fixtures/adamw/adamw.json', import.meta.url), 'utf8'),
) as AdamwFixture;

function word(seed: number, index: number): number {
  let x = (Math.imul(index, 0x9e37_79b9) + seed) >>> 0;
  x ^= x >>> 16;
  x = Math.imul(x, 0x85eb_ca6b);
  x ^= x >>> 13;
  x = Math.imul(x, 0xc2b2_ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/** Random sign and mantissa, and an exponent spread evenly over `low..high`. */
export function floats(seed: number, length: number, [low, high]: readonly [number, number]) {
  const bits = new Uint32Array(length);
  for (let i = 0; i < length; i++) {
    const spread = word((seed ^ 0x5bd1_e995) >>> 0, i) % (high - low + 1);
    bits[i] = (word(seed, i) & 0x807f_ffff) | ((spread + low + 127) << 23);
  }
  return new Float32Array(bits.buffer);
}

/** The parameter before the first step of case number `index`. */
export function initialParam(index: number, each: AdamwCase, length: number): Float32Array {
  return floats(1000 * index, length, each.param_exponents);
}

/** The gradient of `step`, from zero. */
export function gradient(index: number, each: AdamwCase, step: number, length: number) {
  return floats(1000 * index + 1 + step, length, each.grad_exponents);
}

/** The scalars of `step`, from zero. */
export function scalarsOf(each: AdamwCase, step: number): AdamwScalars {
  return {
    learningRate: (each.lr * (10 - step)) / 10,
    beta1: each.beta1,
    beta2: each.beta2,
    epsilon: each.eps,
    weightDecay: each.weight_decay,
    step: step + 1,
    gradScale: each.grad_scale,
  };
}

// Goal: the norm's bits do not depend on where the leaves are cut; clipping follows torch.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { clipCoefficient, gradientNorm } from '../../src/optim/grad-norm.js';

describe('gradientNorm', () => {
  it('has the same bits wherever the leaves are cut into parts', () => {
    const leaves = fc.array(fc.double({ min: 0, max: 1e12, noNaN: true }), { minLength: 1 });
    fc.assert(
      fc.property(leaves, fc.array(fc.nat(30)), (values, cuts) => {
        const bounds = [0, ...cuts.sort((a, b) => a - b), Infinity];
        const parts = bounds
          .slice(1)
          .map((end, index) => Float64Array.from(values.slice(bounds[index], end)));
        let sum = 0;
        for (const value of values) sum += value;
        expect(gradientNorm(parts)).toBe(Math.sqrt(sum));
      }),
    );
  });

  it('is 0 for no leaves, 5 for leaves 9 and 16, and not finite when a leaf is not', () => {
    expect(gradientNorm([])).toBe(0);
    expect(gradientNorm([Float64Array.of(9), Float64Array.of(16)])).toBe(5);
    expect(gradientNorm([Float64Array.of(1, NaN)])).toBeNaN();
    expect(gradientNorm([Float64Array.of(Infinity)])).toBe(Infinity);
  });
});

describe('clipCoefficient', () => {
  it('is 1 up to the maximum and brings larger norms down to it', () => {
    expect(clipCoefficient(0.5, 1)).toBe(1);
    expect(clipCoefficient(0, 1)).toBe(1);
    // torch 2: clip_grad_norm_ of a gradient [3, 4] with max_norm 1 scales by 1 / (5 + 1e-6).
    expect(clipCoefficient(5, 1)).toBe(Math.fround(1 / 5.000001));
    expect(5 * clipCoefficient(5, 1)).toBeCloseTo(1, 6);
  });

  it('is 0 for an infinite norm, NaN for NaN, and 1 when clipping is off', () => {
    expect(clipCoefficient(Infinity, 1)).toBe(0);
    expect(clipCoefficient(NaN, 1)).toBeNaN();
    expect(clipCoefficient(1e9, 0)).toBe(1);
  });
});

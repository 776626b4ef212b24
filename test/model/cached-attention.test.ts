// Goal: attention over a cache gives what attention over the whole sequence gives, however the
// sequence is cut into calls.
import * as fc from 'fast-check';
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { describe, expect, it } from 'vitest';
import { cachedAttention, type KeyValueRows } from '../../src/model/ops/cached-attention.js';
import { rowAttention } from '../../src/model/ops/self-attention.js';
import { BACKENDS, useBackend } from './backends.js';

const shapes = fc
  .record({
    keyHeads: fc.integer({ min: 1, max: 3 }),
    group: fc.integer({ min: 1, max: 3 }),
    width: fc.integer({ min: 1, max: 10 }).map((half) => 2 * half),
    length: fc.integer({ min: 1, max: 150 }),
    cuts: fc.array(fc.nat({ max: 149 }), { maxLength: 4 }),
    seed: fc.nat({ max: 1000 }),
  })
  .map(({ cuts, length, ...rest }) => {
    const inside = cuts.map((cut) => cut % length).filter((cut) => cut > 0);
    return { ...rest, length, cuts: [...new Set([0, ...inside])].sort((a, b) => a - b) };
  });

/** Rows `from … to` of x. */
const rows = (x: Tensor, from: number, to: number): Tensor =>
  tf.slice(x, [from, 0], [to - from, x.shape[1]!]);

describe.each(BACKENDS)('cached attention on %s', (backend) => {
  useBackend(backend);

  it('equals attention over the whole sequence: on native in every bit, else within 1e-5', () => {
    fc.assert(
      fc.property(shapes, ({ keyHeads, group, width, length, cuts, seed }) => {
        tf.tidy(() => {
          const heads = keyHeads * group;
          const random = (columns: number, salt: number): Tensor =>
            tf.randomNormal([length, columns], 0, 2, 'float32', seed * 3 + salt);
          const q = random(heads * width, 0);
          const [k, v] = [random(keyHeads * width, 1), random(keyHeads * width, 2)];
          const whole = rowAttention([q, k, v], { batch: 1, length, heads, keyHeads }).dataSync();
          const parts = cuts.map((from, index) => {
            const to = cuts[index + 1] ?? length;
            const cached: KeyValueRows | undefined =
              from === 0 ? undefined : { keys: rows(k, 0, from), values: rows(v, 0, from) };
            const added = { keys: rows(k, from, to), values: rows(v, from, to) };
            return cachedAttention(rows(q, from, to), added, cached, { heads, keyHeads });
          });
          const actual = tf.concat(parts, 0).dataSync();
          if (backend === 'native') expect(actual).toEqual(whole);
          else actual.forEach((value, index) => expect(value).toBeCloseTo(whole[index]!, 5));
        });
      }),
      { numRuns: backend === 'native' ? 150 : 25 },
    );
  });

  it('leaves no tensor behind but its result', () => {
    const [q, k, v] = [8, 4, 4].map((columns) => tf.ones([3, columns])) as [Tensor, Tensor, Tensor];
    const before = tf.memory().numTensors;
    cachedAttention(q, { keys: k, values: v }, undefined, { heads: 4, keyHeads: 2 }).dispose();
    expect(tf.memory().numTensors).toBe(before);
    for (const tensor of [q, k, v]) tensor.dispose();
  });
});

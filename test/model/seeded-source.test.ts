// Goal: seeded first values depend on (seed, name, index) only and are normal.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { ParamInit, ParamSpec } from '../../src/model/block.js';
import { seededSource } from '../../src/model/seeded-source.js';

function specOf(name: string, length: number, init: ParamInit): ParamSpec {
  return { name, shape: [length], init, decay: false };
}

async function readAll(spec: ParamSpec, seed: number): Promise<Float32Array> {
  const values = new Float32Array(spec.shape[0]!);
  await seededSource(spec, seed).read(0, values);
  return values;
}

const normal = (name: string, length: number): ParamSpec =>
  specOf(name, length, { kind: 'normal', std: 0.5 });

it('gives the same values however the reads are cut', async () => {
  const whole = await readAll(normal('w', 1001), 7);
  await fc.assert(
    fc.asyncProperty(fc.nat(1000), fc.nat(1001), async (offset, count) => {
      const length = Math.min(count, 1001 - offset);
      const piece = new Float32Array(length);
      await seededSource(normal('w', 1001), 7).read(offset, piece);
      expect(piece).toEqual(whole.slice(offset, offset + length));
    }),
  );
});

it('differs between names and between seeds', async () => {
  const values = await readAll(normal('a', 64), 1);
  expect(await readAll(normal('b', 64), 1)).not.toEqual(values);
  expect(await readAll(normal('a', 64), 2)).not.toEqual(values);
});

it('has the moments of a normal distribution', async () => {
  const count = 200_000;
  const values = await readAll(normal('moments', count), 3);
  const moment = (power: number): number =>
    values.reduce((total, value) => total + (value / 0.5) ** power, 0) / count;
  // Five standard errors of each sample moment: sqrt(1), sqrt(2), sqrt(15), sqrt(96) over sqrt(n).
  const error = 5 / Math.sqrt(count);
  expect(Math.abs(moment(1))).toBeLessThan(error);
  expect(Math.abs(moment(2) - 1)).toBeLessThan(error * Math.sqrt(2));
  expect(Math.abs(moment(3))).toBeLessThan(error * Math.sqrt(15));
  expect(Math.abs(moment(4) - 3)).toBeLessThan(error * Math.sqrt(96));
});

it('fills zeros and ones', async () => {
  expect(await readAll(specOf('z', 3, { kind: 'zeros' }), 1)).toEqual(new Float32Array(3));
  expect(await readAll(specOf('o', 3, { kind: 'ones' }), 1)).toEqual(Float32Array.of(1, 1, 1));
});

it('refuses to read outside the tensor', async () => {
  const source = seededSource(normal('w', 4), 1);
  await expect(source.read(2, new Float32Array(3))).rejects.toMatchObject({ code: 'INTERNAL' });
});

/**
 * @file AdamW beside a loop with the same memory traffic (reads p, g, m, v; writes p, m, v).
 */
import { kernels, native } from '../tiers/native/binding.js';
import type { AdamwScalars } from '../tiers/native/native-binding.js';
import { portableKernels } from '../tiers/native/portable/kernels.js';
import { compareWithCeiling } from './alternate.js';

/** 64 MiB per array: four arrays are well beyond any cache of this class of machine. */
const LENGTH = 2 ** 24;
/** The TypeScript twin is some thirty times slower; a shorter array keeps a round near a second. */
const TYPESCRIPT_LENGTH = 2 ** 20;

const scalars: AdamwScalars = {
  learningRate: 1e-4,
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0.01,
  step: 3,
  gradScale: 0.7,
};

const filled = (length: number, scale: number) =>
  new Float32Array(new SharedArrayBuffer(4 * length)).map(
    (_, i) => scale * ((Math.imul(i, 2_654_435_761) >>> 8) / 2 ** 24 + 0.01),
  );

export default function benchAdamw(): void {
  const addon = native();
  if (addon === undefined) throw new Error('the ceiling is a native loop; build the addon first');
  const [param, grad, m, v] = [1, 1e-3, 1e-3, 1e-6].map((scale) => filled(LENGTH, scale)) as [
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  // A parameter that is not multiplied by a decay keeps growing by `grad`; harmless at 16 rounds.
  const ceiling = {
    name: 'traffic',
    bytes: 28 * LENGTH,
    run: () => addon.adamwTraffic(param, grad, m, v),
  };
  const low = new Uint16Array(LENGTH);
  const high = new Uint16Array(LENGTH);
  kernels().splitMaster(param, high, low);
  const best = addon.isa();
  for (const isa of addon.isaList().filter((name) => name !== 'portable')) {
    addon.setIsa(isa);
    compareWithCeiling(ceiling, [
      {
        name: `adamw ${isa}`,
        bytes: 28 * LENGTH,
        run: () => kernels().adamw(param, grad, m, v, scalars),
      },
      {
        name: `adamwSplit ${isa}`,
        bytes: 28 * LENGTH,
        run: () => kernels().adamwSplit(high, low, grad, m, v, scalars),
      },
    ]);
  }
  addon.setIsa(best);
  const short = [param, grad, m, v].map((array) => array.subarray(0, TYPESCRIPT_LENGTH)) as [
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  compareWithCeiling(ceiling, [
    {
      name: 'adamw TypeScript',
      bytes: 28 * TYPESCRIPT_LENGTH,
      run: () => portableKernels.adamw(...short, scalars),
    },
  ]);
}

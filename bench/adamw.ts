/**
 * @file AdamW beside a loop with the same memory traffic (reads p, g, m, v; writes p, m, v).
 *
 * One thread, 28 bytes per parameter; the split form moves as many, in five arrays. Claimed for the
 * vectorised kernels, which are what training uses: `TARGET` of the loop. A case below it fails the
 * process (bench/alternate.ts). Run: `npm run bench -- adamw`.
 */
import { kernels, native } from '../tiers/native/binding.js';
import type { AdamwScalars } from '../tiers/native/native-binding.js';
import { portableKernels } from '../tiers/native/portable/kernels.js';
import { alternate, median, printCase, round4, shareOf, verdictOf } from './alternate.js';

/** Of the loop's speed. */
const TARGET = 0.92;
/** 128 MiB per float32 array: four are twice the largest cache that we met, 260 MiB. */
const LENGTH = 2 ** 25;
/** The TypeScript twin is some thirty times slower; a shorter array keeps a round near a second. */
const TYPESCRIPT_LENGTH = 2 ** 20;
/** What one parameter moves: p, m and v both ways, g one way, four bytes each. */
const BYTES = 28;
/** A round takes milliseconds, so that more than elsewhere are cheap. */
const ADAMW_ROUNDS = 21;

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

/** Times `run` over `length` parameters beside `ceiling` over `LENGTH`, and prints the line. */
async function compare(
  name: string,
  ceiling: () => void,
  run: () => void,
  { length = LENGTH, target }: { readonly length?: number; readonly target?: number } = {},
): Promise<void> {
  const times = await alternate({ ceiling, run }, ADAMW_ROUNDS);
  const perParameter = times.run.map((seconds) => (seconds * LENGTH) / length);
  const ratio = shareOf(times.ceiling, perParameter);
  const gbPerSecond = (seconds: readonly number[]): number =>
    round4((BYTES * LENGTH) / median(seconds) / 1e9);
  printCase({
    case: name,
    length,
    rounds: ADAMW_ROUNDS,
    gbPerSecond: gbPerSecond(perParameter),
    ceilingGbPerSecond: gbPerSecond(times.ceiling),
    ratio,
    ...(target !== undefined && verdictOf(ratio, target)),
  });
}

export default async function benchAdamw(): Promise<void> {
  const addon = native();
  if (addon === undefined) throw new Error('the ceiling is a native loop; build the addon first');
  const [param, grad, m, v] = [1, 1e-3, 1e-3, 1e-6].map((scale) => filled(LENGTH, scale)) as [
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  // A parameter that is not multiplied by a decay keeps growing by `grad`; harmless at 100 rounds.
  const traffic = (): void => addon.adamwTraffic(param, grad, m, v);
  const low = new Uint16Array(new SharedArrayBuffer(2 * LENGTH));
  const high = new Uint16Array(new SharedArrayBuffer(2 * LENGTH));
  kernels().splitMaster(param, high, low);
  const best = addon.isa();
  for (const isa of addon.isaList().filter((name) => name !== 'portable')) {
    addon.setIsa(isa);
    const adamw = (): void => kernels().adamw(param, grad, m, v, scalars);
    const split = (): void => kernels().adamwSplit(high, low, grad, m, v, scalars);
    await compare(`adamw ${isa}`, traffic, adamw, { target: TARGET });
    await compare(`adamwSplit ${isa}`, traffic, split, { target: TARGET });
  }
  addon.setIsa(best);
  const short = [param, grad, m, v].map((array) => array.subarray(0, TYPESCRIPT_LENGTH)) as [
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  const twin = (): void => portableKernels.adamw(...short, scalars);
  await compare('adamw TypeScript', traffic, twin, { length: TYPESCRIPT_LENGTH });
}

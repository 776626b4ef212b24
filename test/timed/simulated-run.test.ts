// Goal: what the simulator predicts is what the executor does on a paced device with throttled
// links, by costs and by the run's own durations.
import { describe, expect, it } from 'vitest';
import { LINKS, type Link } from '../../core/types.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/engine-options.js';
import type { HostWork, Span } from '../../src/engine/step-executor.js';
import type { StepCosts } from '../../src/plan/costs.js';
import { measuredRun } from '../../src/plan/measured-seconds.js';
import { simulate, simulateWith } from '../../src/plan/simulate.js';
import type { StepPlan } from '../../src/plan/step-plan.js';
import type { Timeline } from '../../src/plan/timeline.js';
import { chainBatch, chainModel, type ChainShape } from '../engine/paced-chain.js';
import { withFolder } from '../engine/run-engine.js';

const CHAIN: ChainShape = { blocks: 5, rows: 4, width: 256, params: 'matrix' };
const STEPS = 4;
/** Seconds of a compute operation; its kernels take microseconds. */
const COMPUTE = 0.03;

interface Run {
  readonly plan: StepPlan;
  readonly spans: readonly Span[];
  readonly hostWork: readonly HostWork[];
  /** When each step was finished, in seconds. */
  readonly finished: readonly number[];
  readonly buffers: { readonly read: number; readonly write: number };
}

async function run(options: Partial<EngineOptions>, throttles: Partial<Record<Link, number>>) {
  const spans: Span[] = [];
  const hostWork: HostWork[] = [];
  const batch = chainBatch(CHAIN);
  const engine = await Engine.create({
    device: 'native',
    hostMemory: 2 ** 28,
    optimizerWorkers: 2,
    ...options,
    model: chainModel(CHAIN),
    exampleBatch: batch,
    execution: {
      throttles,
      pace: ({ lane, action }) =>
        lane === 'compute' ? COMPUTE : action.kind === 'update' ? updateSeconds(action.length) : 0,
      onSpan: (span) => spans.push(span),
      onHostWork: (work) => hostWork.push(work),
    },
  });
  try {
    const batches = Array.from({ length: options.gradientAccumulationSteps ?? 1 }, () => batch);
    const finished: number[] = [];
    for (let step = 0; step < STEPS; step += 1) {
      await engine.step(batches);
      finished.push(performance.now() / 1000);
    }
    await engine.drain();
    const { stagingCount: read, spillStagingCount: write } = engine.plan;
    return {
      plan: engine.stepPlan(batches),
      spans,
      hostWork,
      finished,
      buffers: { read, write },
    } satisfies Run;
  } finally {
    await engine.close();
  }
}

const ELEMENTS_PER_SECOND = 5e6;
const updateSeconds = (length: number): number => length / ELEMENTS_PER_SECOND;

/** Seconds of each step after the first, which warms up. */
const stepsOf = (finished: readonly number[]): number[] =>
  finished.slice(1).map((end, index) => end - finished[index]!);

const simulatedSteps = ({ steps }: Timeline): number[] =>
  stepsOf(steps.map(({ finished }) => finished));

const FAST = 1e12;

function costsOf({ buffers }: Run, throttles: Partial<Record<Link, number>>): StepCosts {
  const links = LINKS.map((link) => {
    const bytesPerSecond = throttles[link] ?? FAST;
    return [link, { bytesPerSecond, secondsPerPiece: 0 }] as const;
  });
  return {
    workers: 2,
    buffers,
    links: Object.fromEntries(links) as StepCosts['links'],
    computeSeconds: () => COMPUTE,
    updateElementsPerSecond: ELEMENTS_PER_SECOND,
  };
}

/** Bytes of parameters of a block: what a link moves while it computes, at this ratio. */
const throttleOf = (ratio: number): number => (CHAIN.width ** 2 * 4) / (ratio * COMPUTE);

const HOST = { offloadParam: 'cpu', offloadOptimizer: 'cpu' } as const;
const NVME = { offloadParam: 'nvme', offloadOptimizer: 'nvme', nvmeMemory: 2 ** 28 } as const;
const NO_CLIPPING = { optimizer: { maxGradNorm: 0 } };

type Case = readonly [name: string, Partial<EngineOptions>, Partial<Record<Link, number>>];

const CASES: readonly Case[] = [
  ['parameters on the host, uploads as fast as compute', HOST, { upload: throttleOf(1) }],
  ['uploads that limit the step', HOST, { upload: throttleOf(3), download: throttleOf(0.5) }],
  ['updates beside backward', { ...HOST, ...NO_CLIPPING }, { download: throttleOf(0.7) }],
  [
    'several micro-batches, horizontally',
    { ...HOST, gradientAccumulationSteps: 2, microBatchOrder: 'horizontal' },
    { upload: throttleOf(1.5), download: throttleOf(1) },
  ],
  [
    'everything on NVMe',
    NVME,
    { nvme_read: throttleOf(0.5), nvme_write: throttleOf(0.3), upload: throttleOf(0.4) },
  ],
];

describe.each(CASES)('%s', (_name, options, throttles) => {
  it('lasts as long as predicted, by costs and by its own durations', async () => {
    await withFolder(async (folder) => {
      // Whatever else the machine does only makes a step longer: the quickest is the least disturbed.
      const errors: { costs: number; measured: number }[] = [];
      for (let round = 0; round < 4; round += 1) {
        const onNvme = options.offloadParam === 'nvme' ? { nvmePath: folder } : {};
        const ran = await run({ ...options, ...onNvme }, throttles);
        const executed = stepsOf(ran.finished);
        const quickest = executed.indexOf(Math.min(...executed));
        const errorOf = (timeline: Timeline): number =>
          Math.abs(simulatedSteps(timeline)[quickest]! / executed[quickest]! - 1);
        const { buffers } = ran;
        const sequence = { plan: ran.plan, repeat: STEPS };
        const { seconds, rules } = measuredRun(ran.spans, ran.hostWork);
        errors.push({
          costs: errorOf(simulate(sequence, costsOf(ran, throttles))),
          measured: errorOf(simulateWith(sequence, seconds, { ...rules, buffers })),
        });
        if (errors.some(({ costs, measured }) => costs < 0.05 && measured < 0.05)) return;
      }
      expect(errors).toBe('within 5 % once');
    });
  });
});

// Goal: where the bytes live, the micro-batch order, budgets and workers change no bit of a run.
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { EngineOptions } from '../../src/engine/engine-options.js';
import { GradientWriter } from '../../src/engine/gradient-writer.js';
import type { MicroBatch } from '../../src/model/block.js';
import { TierManager } from '../../tiers/tier-manager.js';
import {
  DEVICES,
  readReference,
  runFixture,
  toMicroBatch,
  withFolder,
  type RunRecord,
} from './run-engine.js';

type Variant = Omit<EngineOptions, 'model' | 'exampleBatch'>;

/** Tensors of these fixtures span up to three shards of 4096 elements, which end inside others. */
const COMMON: Variant = {
  subGroupSize: 4096,
  gradientAccumulationSteps: 4,
  optimizer: { learningRate: 5e-3, weightDecay: 0.1, maxGradNorm: 3.5 },
  optimizerWorkers: 1,
};

const RESIDENT: Variant = {
  offloadParam: 'none',
  offloadOptimizer: 'none',
  deviceMemory: '64MiB',
  hostMemory: '64MiB',
};

/** One row per micro-batch, one length: so that four of them and one of four rows are comparable. */
function stepsOf(name: string, stepCount: number, microBatchCount: number): MicroBatch[][] {
  const { training } = readReference(name);
  const rows = training.micro_batches
    .flat()
    .flatMap(({ input_ids, labels }) =>
      input_ids.map((ids, row) => ({ input_ids: [ids], labels: [labels[row] ?? []] })),
    );
  return Array.from({ length: stepCount }, (_, step) =>
    Array.from({ length: microBatchCount }, (_, index) =>
      toMicroBatch(rows[(step * microBatchCount + index) % rows.length]!),
    ),
  );
}

/** Eight steps of four micro-batches, unless told otherwise. */
async function run(
  name: string,
  variant: Variant,
  stepCount = 8,
  microBatchCount = 4,
): Promise<RunRecord> {
  return withFolder((nvmePath) =>
    runFixture(name, stepsOf(name, stepCount, microBatchCount), {
      ...COMMON,
      ...variant,
      ...(variant.deviceMemory === RESIDENT.deviceMemory ? {} : { nvmePath }),
    }),
  );
}

/** A method before it is replaced, to be called with its `this`. */
function originalOf<T, K extends keyof T>(prototype: T, name: K): T[K] {
  return prototype[name];
}

function expectSameBits(actual: RunRecord, expected: RunRecord): void {
  expect(actual.losses).toEqual(expected.losses);
  expect(actual.gradNorms).toEqual(expected.gradNorms);
  for (const [name, weights] of Object.entries(expected.weights)) {
    const bits = new Uint8Array(weights.buffer);
    expect(Buffer.compare(new Uint8Array(actual.weights[name]!.buffer), bits), name).toBe(0);
  }
}

const VARIANTS: readonly [string, Variant][] = [
  [
    'parameters on host',
    { offloadParam: 'cpu', offloadOptimizer: 'cpu', deviceMemory: '8MiB', hostMemory: '32MiB' },
  ],
  [
    'everything on NVMe, two workers',
    {
      offloadParam: 'nvme',
      offloadOptimizer: 'nvme',
      deviceMemory: '512KiB',
      hostMemory: '6MiB',
      optimizerWorkers: 2,
    },
  ],
  [
    'homes chosen for a small budget',
    { deviceMemory: '300KiB', hostMemory: '5MiB', microBatchOrder: 'vertical' },
  ],
  [
    'horizontal order, everything on NVMe',
    {
      offloadParam: 'nvme',
      offloadOptimizer: 'nvme',
      deviceMemory: '512KiB',
      hostMemory: '6MiB',
      microBatchOrder: 'horizontal',
    },
  ],
  [
    'throttled links, which change the timing',
    {
      deviceMemory: '512KiB',
      hostMemory: '6MiB',
      execution: { throttles: { upload: 3e8, download: 1e8, nvme_read: 2e9, nvme_write: 1e9 } },
    },
  ],
  [
    'horizontal order, on host',
    {
      offloadParam: 'cpu',
      offloadOptimizer: 'cpu',
      deviceMemory: '8MiB',
      hostMemory: '32MiB',
      microBatchOrder: 'horizontal',
      optimizerWorkers: 2,
    },
  ],
];

afterEach(() => void vi.restoreAllMocks());

/** Everything on the default device; the others, which share all but the kernels, on one model. */
const CASES = [
  ['gpt2-tiny', 'float32', DEVICES[0]!],
  ['gpt2-tiny', 'bfloat16', DEVICES[0]!],
  ['llama-tiny-untied', 'float32', DEVICES[0]!],
  ['llama-tiny', 'bfloat16', DEVICES[0]!],
  ...DEVICES.slice(1).map((device) => ['llama-tiny', 'float32', device] as const),
] as const;

describe.each(CASES)('%s in %s on %s', (name, dtype, device) => {
  let resident: RunRecord | undefined;

  it('repeats its own bits when resident', async () => {
    resident = await run(name, { ...RESIDENT, dtype, device });
    expectSameBits(await run(name, { ...RESIDENT, dtype, device }), resident);
  });

  it.each(VARIANTS)('gives the resident bits with %s', async (_, variant) => {
    expectSameBits(await run(name, { ...variant, dtype, device }), resident!);
  });
});

describe.each(['float32', 'bfloat16'] as const)('one micro-batch per step, %s', (dtype) => {
  it('gives the resident bits in both orders', async () => {
    const options = { gradientAccumulationSteps: 1, dtype } as const;
    const resident = await run('gpt2-tiny', { ...RESIDENT, ...options }, 8, 1);
    for (const microBatchOrder of ['vertical', 'horizontal'] as const) {
      const offloaded: Variant = {
        offloadParam: 'nvme',
        offloadOptimizer: 'nvme',
        deviceMemory: '512KiB',
        hostMemory: '6MiB',
        microBatchOrder,
      };
      expectSameBits(await run('gpt2-tiny', { ...offloaded, ...options }, 8, 1), resident);
    }
  });
});

describe('updates during backward (no clipping)', () => {
  it('gives the resident bits on NVMe', async () => {
    const optimizer = { learningRate: 5e-3, maxGradNorm: 0 };
    const resident = await run('gpt2-tiny', { ...RESIDENT, optimizer }, 3);
    const [, [, variant]] = VARIANTS as [unknown, [string, Variant]];
    expectSameBits(await run('gpt2-tiny', { ...variant, optimizer }, 3), resident);
  });
});

describe('the comparison notices', () => {
  const [, [, onNvme]] = VARIANTS as [unknown, [string, Variant]];
  const horizontal = VARIANTS[3]![1];

  it('one shard that is not uploaded', async () => {
    const resident = await run('gpt2-tiny', RESIDENT, 2);
    const read = originalOf(TierManager.prototype, 'read');
    let target: unknown;
    vi.spyOn(TierManager.prototype, 'read').mockImplementation(function (
      this: TierManager,
      location,
      type,
      start,
      count,
      visit,
      turns,
    ) {
      target ??= location;
      const altered: typeof visit = (offset, bytes) =>
        visit(offset, location === target ? new Uint8Array(bytes.length) : bytes);
      return read.call(this, location, type, start, count, altered, turns);
    });
    const mutated = await run('gpt2-tiny', onNvme, 2);
    expect(() => expectSameBits(mutated, resident)).toThrow();
  });

  it("one micro-batch's gradient that is dropped", async () => {
    const write = originalOf(GradientWriter.prototype, 'writeDense');
    let calls = 0;
    vi.spyOn(GradientWriter.prototype, 'writeDense').mockImplementation(async function (
      this: GradientWriter,
      block,
      gradients,
      first,
      turns,
    ) {
      calls += first ? 0 : 1;
      if (first || calls !== 2) await write.call(this, block, gradients, first, turns);
    });
    // By the bytes that did not move; the weights would differ as well.
    await expect(run('gpt2-tiny', horizontal, 2)).rejects.toThrow();
    expect(calls).toBeGreaterThan(2);
  });
});

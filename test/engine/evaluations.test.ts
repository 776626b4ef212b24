// Goal: an evaluation moves and holds what its plan says, gives the same bits however its batches are
// grouped, and fetches no more often than the slots of the region ask for.
import { describe, expect, it } from 'vitest';
import { isCoded } from '../../core/errors.js';
import { LINKS } from '../../core/types.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/engine-options.js';
import { InferenceEngine } from '../../src/engine/inference-engine.js';
import type { InferenceOptions } from '../../src/engine/inference-options.js';
import type { Span } from '../../src/engine/step-executor.js';
import type { Model } from '../../src/model/block.js';
import { matrixSpec } from '../../src/model/block-params.js';
import { defineModel } from '../../src/model/define-model.js';
import { tokenEmbedding } from '../../src/model/token-embedding.js';
import { vocabularyHead } from '../../src/model/vocabulary-head.js';
import { bytesPerLink } from '../../src/plan/step-plan.js';
import { chainBatch, chainModel, deviceMemoryFor, type ChainShape } from './paced-chain.js';
import { withFolder } from './run-engine.js';
import { tiedBatch, tiedModel, type TiedShape } from './tied-model.js';

const TIED: TiedShape = { vocab: 200, width: 32, blocks: 3, length: 10 };
const CHAIN: ChainShape = { blocks: 5, rows: 3, width: 256, params: 'matrix' };

async function withEngine<T>(
  options: EngineOptions,
  body: (engine: Engine) => Promise<T>,
): Promise<T> {
  const engine = await Engine.create({ hostMemory: 2 ** 27, ...options });
  try {
    return await body(engine);
  } finally {
    await engine.close();
  }
}

const HOMES = ['none', 'cpu', 'nvme'] as const;

describe.each(['float32', 'bfloat16'] as const)('an evaluation in %s', (dtype) => {
  it('has the same bits wherever parameters live and however its batches are grouped', async () => {
    const batches = [0, 1, 2, 3, 4].map((seed) => tiedBatch(TIED, seed));
    const losses = await withFolder(async (nvmePath) => {
      const all: number[] = [];
      for (const [offloadParam, gradientAccumulationSteps] of [
        ['none', 1],
        ['cpu', 2],
        ['nvme', 2],
        ['nvme', 7],
      ] as const) {
        const options = {
          model: tiedModel(TIED),
          exampleBatch: tiedBatch(TIED),
          dtype,
          nvmePath,
          offloadParam,
          gradientAccumulationSteps,
          subGroupSize: 4096,
        };
        all.push((await withEngine(options, (engine) => engine.evaluate(batches))).loss);
      }
      return all;
    });
    expect(new Set(losses).size).toBe(1);
    expect(losses[0]).toBeGreaterThan(0);
  });

  it.each(HOMES)('moves the bytes of its plans, parameters at %s', async (offloadParam) => {
    await withFolder(async (nvmePath) => {
      const batches = [0, 1, 2].map((seed) => tiedBatch(TIED, seed));
      const spans: Span[] = [];
      const options = {
        model: tiedModel(TIED),
        exampleBatch: tiedBatch(TIED),
        dtype,
        nvmePath,
        offloadParam,
        gradientAccumulationSteps: 2,
        subGroupSize: 4096,
        execution: { onSpan: (span: Span) => spans.push(span) },
      };
      await withEngine(options, async (engine) => {
        await engine.step(batches.slice(0, 2));
        await engine.drain();
        spans.length = 0;
        const moved = engine.bytesMoved;
        await engine.evaluate(batches);
        for (const some of [batches.slice(0, 2), batches.slice(2)]) {
          const planned = bytesPerLink(engine.evaluationPlan(some));
          for (const link of LINKS) moved[link] += planned[link];
        }
        expect(engine.bytesMoved).toEqual(moved);
        // Whoever traces a run can tell them from a step's.
        expect(spans.every(({ step, isEvaluation }) => step === 1 && isEvaluation)).toBe(true);
        expect(spans.length).toBeGreaterThan(0);
      });
    });
  });
});

/** The fewest loads of `accesses` into so many slots: all choices of who leaves are tried. */
function fewestLoads(accesses: readonly number[], slots: number): number {
  const known = new Map<string, number>();
  const least = (at: number, held: readonly number[]): number => {
    const block = accesses[at];
    if (block === undefined) return 0;
    if (held.includes(block)) return least(at + 1, held);
    const key = `${at}/${held.join()}`;
    let loads = known.get(key);
    if (loads === undefined) {
      const others =
        held.length < slots ? [held] : held.map((gone) => held.filter((one) => one !== gone));
      loads = 1 + Math.min(...others.map((rest) => least(at + 1, [...rest, block].sort())));
      known.set(key, loads);
    }
    return loads;
  };
  return least(0, []);
}

async function leastDeviceMemory(options: InferenceOptions): Promise<number> {
  const facts = await InferenceEngine.create({ ...options, deviceMemory: 1 }).then(
    () => undefined,
    (error: unknown) => (isCoded(error) ? error.facts : undefined),
  );
  return Number(facts?.['neededDeviceBytes']);
}

describe.each(['float32', 'bfloat16'] as const)('an inference engine in %s', (dtype) => {
  const lengths = [TIED.length, 4, TIED.length, 2, 7];
  const batches = lengths.map((length, seed) => tiedBatch({ ...TIED, length }, seed));
  const cases = [
    { offloadParam: 'none', deviceMemory: 2 ** 26 },
    { offloadParam: 'cpu', deviceMemory: 2 ** 26 },
    { offloadParam: 'nvme', deviceMemory: 2 ** 26 },
    { offloadParam: 'nvme', deviceMemory: 'least' },
  ] as const;

  it.each(cases)(
    'moves and holds what its plans say, weights at $offloadParam, in $deviceMemory bytes',
    async ({ offloadParam, deviceMemory }) => {
      await withFolder(async (nvmePath) => {
        const options = {
          model: tiedModel(TIED),
          exampleBatch: tiedBatch(TIED),
          device: 'native',
          dtype,
          nvmePath,
          offloadParam,
          hostMemory: 2 ** 26,
          subGroupSize: 4096,
        } as const;
        const engine = await InferenceEngine.create({
          ...options,
          deviceMemory: deviceMemory === 'least' ? await leastDeviceMemory(options) : deviceMemory,
        });
        try {
          const most = engine.plan.evaluationBatches;
          expect(most).toBe(deviceMemory === 'least' ? 1 : 8);
          const groups = Array.from({ length: Math.ceil(batches.length / most) }, (_, index) =>
            batches.slice(index * most, (index + 1) * most),
          );
          const moved = engine.bytesMoved;
          let peak = 0;
          for (const some of groups) {
            const planned = bytesPerLink(engine.evaluationPlan(some));
            for (const link of LINKS) moved[link] += planned[link];
            peak = Math.max(peak, (await engine.devicePeak(some)) ?? 0);
          }
          await engine.evaluate(batches);
          expect(engine.bytesMoved).toEqual(moved);
          expect(engine.peakBytes.device).toBe(peak);
          expect(peak).toBeLessThanOrEqual(engine.plan.peakBytes.device);
          expect(engine.peakBytes).toMatchObject({
            host: engine.plan.peakBytes.host,
            nvme: engine.plan.peakBytes.nvme,
          });
        } finally {
          await engine.close();
        }
      });
    },
  );
});

it('holds what its plan says where the head takes most of it', async () => {
  const shape: TiedShape = { vocab: 8, width: 256, blocks: 0, length: 30 };
  const batch = tiedBatch(shape);
  const options = {
    model: tiedModel(shape),
    exampleBatch: batch,
    device: 'native',
    offloadParam: 'cpu',
    hostMemory: 2 ** 26,
  } as const;
  const engine = await InferenceEngine.create({
    ...options,
    deviceMemory: await leastDeviceMemory(options),
  });
  try {
    const peak = await engine.devicePeak([batch]);
    await engine.evaluate([batch]);
    expect(engine.peakBytes.device).toBe(peak);
    expect(peak).toBeLessThanOrEqual(engine.plan.peakBytes.device);
  } finally {
    await engine.close();
  }
});

/** Nothing waits for the updates of the head's matrix, which are many, but the head's tiles. */
function untiedModel(): Model {
  const { width } = TIED;
  const vocab = 5 * TIED.vocab;
  const matrix = matrixSpec('matrix', [vocab, width], 0.3);
  const head = vocabularyHead({
    name: 'head',
    kind: 'plain',
    matrix: matrix.name,
    vocabSize: vocab,
    hiddenSize: width,
    owns: [matrix],
    normUses: [],
    norm: (_, x) => x,
  });
  const table = matrixSpec('table', [vocab, width], 0.3);
  const embedding = tokenEmbedding({ name: 'embedding', tokens: table });
  return defineModel({ name: 'untied', blocks: [embedding, head], seed: 1 });
}

describe('an evaluation of several batches', () => {
  it.each([1, 2, 3])('loads as rarely as %s slots allow', async (slots) => {
    const options = {
      offloadParam: 'cpu',
      offloadOptimizer: 'cpu',
      hostMemory: 2 ** 27,
      gradientAccumulationSteps: 4,
    } as const;
    const deviceMemory = await deviceMemoryFor(
      CHAIN,
      options,
      ({ region }) => region.paramSlots === slots,
    );
    const model = { model: chainModel(CHAIN), exampleBatch: chainBatch(CHAIN) };
    await withEngine({ ...options, ...model, deviceMemory }, async (engine) => {
      const batches = Array.from({ length: 4 }, () => chainBatch(CHAIN));
      const accesses = batches.flatMap(() => Array.from({ length: CHAIN.blocks }, (_, i) => i));
      const { paramLoadCount } = engine.evaluationPlan(batches);
      expect(paramLoadCount).toBe(fewestLoads(accesses, slots));
      expect((await engine.evaluate(batches)).terms).toBe(4 * CHAIN.rows);
    });
  });

  it.each([
    ['cpu', 'tied', tiedModel(TIED)],
    ['none', 'tied', tiedModel(TIED)],
    ['none', 'untied', untiedModel()],
  ] as const)(
    'waits for the update of the step before, weight by weight, parameters at %s, %s',
    async (offloadParam, _, model) => {
      const options = { model, exampleBatch: tiedBatch(TIED) };
      const batches = [tiedBatch(TIED, 3)];
      const lossAfter = async (updateMs: number, waits: boolean): Promise<number> =>
        withEngine(
          {
            ...options,
            offloadParam,
            offloadOptimizer: 'cpu',
            subGroupSize: 4096,
            optimizerWorkers: 1,
            optimizer: { learningRate: 0.1 },
            execution: { pace: ({ action }) => (action.kind === 'update' ? updateMs / 1000 : 0) },
          },
          async (engine) => {
            await engine.step(batches);
            if (waits) await engine.drain();
            return (await engine.evaluate(batches)).loss;
          },
        );
      expect(await lossAfter(15, false)).toBe(await lossAfter(0, true));
    },
  );
});

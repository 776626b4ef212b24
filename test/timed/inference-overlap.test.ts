// Goal: on a paced device with a throttled link, an evaluation and the continuation of a sequence take
// little more than the longer of compute and link; without room to prefetch, their sum.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isCoded } from '../../core/errors.js';
import { silentLogger } from '../../core/logger.js';
import { Engine } from '../../src/engine/engine.js';
import type { ExecutionOptions } from '../../src/engine/engine-options.js';
import { InferenceEngine } from '../../src/engine/inference-engine.js';
import type { Span } from '../../src/engine/step-executor.js';
import { defineModel } from '../../src/model/define-model.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';
import type { Operation } from '../../src/plan/step-plan.js';
import {
  chainBatch,
  chainModel,
  leastDeviceMemory,
  type ChainShape,
} from '../engine/paced-chain.js';

/** Parameters of 1 MiB per block are what moves. */
const CHAIN: ChainShape = { blocks: 12, rows: 2, width: 512, params: 'matrix' };
const COMPUTE_MS = 20;
const ROUNDS = 8;

let nvmePath = '';
beforeAll(() => {
  nvmePath = mkdtempSync(join(tmpdir(), 'spillway-inference-overlap-'));
});
afterAll(() => rmSync(nvmePath, { recursive: true, force: true }));

/** Something that runs plans, and what ran last. */
class Paced {
  readonly execution: ExecutionOptions;
  readonly #throttles: Record<string, number> = {};
  readonly #ran = new Set<Operation>();
  #computeMs = 0;

  constructor() {
    this.execution = {
      throttles: this.#throttles,
      pace: (operation) => (isPaced(operation) ? this.#computeMs / 1000 : 0),
      onSpan: ({ operation }: Span) => this.#ran.add(operation),
    };
  }

  /** Milliseconds of a run: the least of several, or the first that is at most `enough` of the longer
   * lane, which both lanes are made to take. */
  async measure(
    link: 'upload' | 'nvme_read',
    run: () => Promise<unknown>,
    enough = 0,
  ): Promise<{ ms: number; longestMs: number; fillMs: number }> {
    this.#throttles[link] = Infinity;
    await run();
    this.#ran.clear();
    await run();
    const operations = [...this.#ran];
    const bytes = operations.map((operation) => operation.bytes[link] ?? 0);
    const total = bytes.reduce((sum, one) => sum + one, 0);
    const longestMs = COMPUTE_MS * operations.filter(isPaced).length;
    this.#throttles[link] = total / (longestMs / 1000);
    this.#computeMs = COMPUTE_MS;
    // Before the first block can run its parameters come.
    const fillMs = (longestMs * Math.max(...bytes)) / total;
    let ms = Infinity;
    for (let round = 0; round < ROUNDS && ms > enough * longestMs + fillMs; round += 1) {
      const start = performance.now();
      await run();
      ms = Math.min(ms, performance.now() - start);
    }
    return { ms, longestMs, fillMs };
  }
}

/** Blocks that read parameters; the head's few are not. */
function isPaced({ action }: Operation): boolean {
  return action.kind === 'forward' || action.kind === 'extend';
}

/** What is measured. */
interface Runnable {
  readonly run: () => Promise<unknown>;
  readonly close: () => Promise<void>;
}

const HOST = { offloadParam: 'cpu', hostMemory: 2 ** 28 } as const;
const NVME = () => ({ offloadParam: 'nvme', nvmePath, hostMemory: 2 ** 28 }) as const;

type Wish = typeof HOST | ReturnType<typeof NVME>;

/** An evaluation between two training steps. */
async function training(wish: Wish, isWide: boolean, paced: Paced): Promise<Runnable> {
  const options = { ...wish, offloadOptimizer: 'cpu', optimizerWorkers: 1 } as const;
  const deviceMemory = isWide ? 2 ** 25 : await leastDeviceMemory(CHAIN, options);
  const exampleBatch = chainBatch(CHAIN);
  const { execution } = paced;
  const chain = { model: chainModel(CHAIN), exampleBatch, execution };
  const engine = await Engine.create({ ...options, ...chain, deviceMemory });
  return { run: () => engine.evaluate([exampleBatch]), close: () => engine.close() };
}

async function evaluation(wish: Wish, isWide: boolean, paced: Paced): Promise<Runnable> {
  const exampleBatch = chainBatch(CHAIN);
  const { execution } = paced;
  const options = { ...wish, model: chainModel(CHAIN), exampleBatch, execution };
  const engine = await createWith(options, isWide);
  return { run: () => engine.evaluate([exampleBatch]), close: () => engine.close() };
}

async function continuation(wish: Wish, isWide: boolean, paced: Paced): Promise<Runnable> {
  const config = {
    ...{ model_type: 'gpt2', vocab_size: 64, n_positions: 64 },
    ...{ n_embd: 128, n_layer: 12, n_head: 2 },
  };
  const { blocks } = modelFromConfig(config, { strict: false, logger: silentLogger });
  const model = defineModel({ name: 'sequence', blocks, seed: 2 });
  const { execution } = paced;
  const engine = await createWith({ ...wish, model, maxLength: 64, execution }, isWide);
  return { run: () => engine.append([3]), close: () => engine.close() };
}

/** With device memory enough to prefetch, or as little as works. */
async function createWith(
  options: Parameters<typeof InferenceEngine.create>[0],
  isWide: boolean,
): Promise<InferenceEngine> {
  if (isWide) return InferenceEngine.create({ ...options, deviceMemory: 2 ** 25 });
  const refused: unknown = await InferenceEngine.create({ ...options, deviceMemory: 1 }).catch(
    (error: unknown) => error,
  );
  if (!isCoded(refused)) throw new Error('a byte is too little');
  const deviceMemory = Number(refused.facts?.['neededDeviceBytes']);
  return InferenceEngine.create({ ...options, deviceMemory });
}

describe.each([
  ['an evaluation during training', training],
  ['an evaluation', evaluation],
  ['a continuation', continuation],
] as const)('%s', (_name, create) => {
  it.each([
    ['upload', () => HOST],
    ['nvme_read', NVME],
  ] as const)('hides compute or %s behind the longer of the two', async (link, wish) => {
    const paced = new Paced();
    const { run, close } = await create(wish(), true, paced);
    try {
      const { ms, longestMs, fillMs } = await paced.measure(link, run, 1.1);
      expect(ms).toBeLessThanOrEqual(1.15 * longestMs + fillMs);
      // No faster than throttle and pace allow.
      expect(ms).toBeGreaterThan(0.98 * longestMs);
    } finally {
      await close();
    }
  });

  it('takes the sum of both where there is no room to prefetch', async () => {
    const paced = new Paced();
    const { run, close } = await create(HOST, false, paced);
    try {
      const { ms, longestMs } = await paced.measure('upload', run, 2.1);
      expect(ms).toBeGreaterThan(1.7 * longestMs);
    } finally {
      await close();
    }
  });
});

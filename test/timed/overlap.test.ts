// Goal: on a paced device a steady step takes little more than its longest lane: transfers hide
// behind compute or compute behind transfers, and updates hide behind the passes beside them.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bytesPerLink } from '../../src/plan/step-plan.js';
import {
  deviceMemoryFor,
  leastDeviceMemory,
  PacedChain,
  type ChainShape,
  type EngineShape,
} from '../engine/paced-chain.js';

/** Parameters of 1 MiB per block are what moves; all but the last block's are frozen. */
const LOADS: ChainShape = { blocks: 12, rows: 2, width: 512, params: 'matrix', onlyLast: true };
/** Activations of 512 KiB before each block are what moves, forward and backward. */
const SPILLS: ChainShape = { blocks: 8, rows: 128, width: 1024, params: 'scale' };
const UPDATES: ChainShape = { blocks: 16, rows: 2, width: 64, params: 'matrix' };

const HOST = {
  offloadParam: 'cpu',
  offloadOptimizer: 'cpu',
  hostMemory: 2 ** 28,
  optimizerWorkers: 1,
} as const satisfies EngineShape;

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'spillway-overlap-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const CASES = [
  { link: 'upload', shape: LOADS, options: (): EngineShape => HOST },
  {
    link: 'nvme_read',
    shape: LOADS,
    options: (): EngineShape => ({ ...HOST, offloadParam: 'nvme', nvmePath: folder }),
  },
  {
    link: 'download',
    shape: SPILLS,
    options: (): EngineShape => ({
      ...HOST,
      gradientAccumulationSteps: 3,
      microBatchOrder: 'vertical',
    }),
  },
] as const;

/** Compute time of each operation: more where both lanes are busy, so that noise counts less. */
const RATIOS = [
  { ratio: 0.3, computeMs: 8 },
  { ratio: 1, computeMs: 20 },
  { ratio: 3, computeMs: 5 },
] as const;

/** Sets the link's rate to `ratio` times what compute takes; says what the lanes take. */
function paceLink(
  chain: PacedChain,
  link: (typeof CASES)[number]['link'],
  ratio: number,
  computeMs: number,
): { longestMs: number; fillMs: number } {
  const { plan, computeCount } = chain;
  const bytes = bytesPerLink(plan)[link];
  const linkMs = ratio * computeMs * computeCount;
  chain.set({ computeMs, throttles: { [link]: bytes / (linkMs / 1000) } });
  const largest = Math.max(...plan.operations.map((operation) => operation.bytes[link] ?? 0));
  return {
    longestMs: Math.max(computeMs * computeCount, linkMs),
    // What comes before the first operation of the longer lane, or after its last one.
    fillMs: ratio <= 1 ? (linkMs * largest) / bytes : computeMs,
  };
}

describe.each(CASES)('$link', ({ link, shape, options }) => {
  let ample: PacedChain;

  beforeAll(async () => {
    const deviceMemory = await deviceMemoryFor(
      shape,
      options(),
      ({ region, spillLag }) => region.paramSlots >= 3 && spillLag === 1,
    );
    ample = await PacedChain.create(shape, { ...options(), deviceMemory });
  });
  afterAll(() => ample.engine.close());

  it.each(RATIOS)(
    'and compute take at most 1.12 times the longer of the two, at $ratio times the compute time',
    async ({ ratio, computeMs }) => {
      const { longestMs, fillMs } = paceLink(ample, link, ratio, computeMs);
      const most = 1.12 * longestMs + fillMs;
      const stepMs = await ample.steadyStepMs({ enoughMs: most });
      expect(stepMs).toBeLessThanOrEqual(most);
      // No faster than the throttle and the pace allow.
      expect(stepMs).toBeGreaterThan(0.98 * longestMs);
    },
  );

  it('and compute follow one another where there is no room to prefetch', async () => {
    const deviceMemory = await leastDeviceMemory(shape, options());
    const narrow = await PacedChain.create(shape, { ...options(), deviceMemory });
    try {
      expect(narrow.engine.plan).toMatchObject({ spillLag: 0, region: { paramSlots: 1 } });
      const { longestMs } = paceLink(narrow, link, 1, 6);
      expect(await narrow.steadyStepMs({ mostSteps: 3 })).toBeGreaterThan(1.8 * longestMs);
    } finally {
      await narrow.engine.close();
    }
  });
});

describe.each([
  { mode: 'with clipping, under the next forward pass', maxGradNorm: 1 },
  { mode: 'without clipping, under the backward pass', maxGradNorm: 0 },
])('the update $mode', ({ maxGradNorm }) => {
  it('is hidden to at least 85 %', async () => {
    const computeMs = 12;
    const updateMs = 10;
    const options = { ...HOST, optimizer: { maxGradNorm }, deviceMemory: 2 ** 26 };
    const chain = await PacedChain.create(UPDATES, options);
    try {
      chain.set({ computeMs });
      const alone = await chain.steadyStepMs({ enoughMs: 1.02 * computeMs * chain.computeCount });
      chain.set({ computeMs, updateMs });
      const totalMs = updateMs * UPDATES.blocks;
      const beside = await chain.steadyStepMs({ enoughMs: alone + 0.15 * totalMs });
      expect(beside - alone).toBeLessThanOrEqual(0.15 * totalMs);
      // A weight is not read before it is updated: one update, at least, cannot be hidden.
      expect(beside - alone).toBeGreaterThan(0.5 * updateMs);
    } finally {
      await chain.engine.close();
    }
  });
});

// Goal: a step fetches parameters, and reads and writes optimizer states, as rarely as memory allows.
import { describe, expect, it } from 'vitest';
import type { Link } from '../../core/types.js';
import { Engine } from '../../src/engine/engine.js';
import type { Span } from '../../src/engine/step-executor.js';
import type { MemoryPlan } from '../../src/plan/placement.js';
import {
  chainBatch,
  chainModel,
  deviceMemoryFor,
  hostMemoryFor,
  type ChainShape,
  type EngineShape,
} from './paced-chain.js';
import { withFolder } from './run-engine.js';

const CHAIN: ChainShape = { blocks: 7, rows: 2, width: 256, params: 'matrix' };
const BLOCK_BYTES = CHAIN.width ** 2 * 4;

/** The spans of a second step, and the bytes that it moved. */
async function secondStep(
  options: EngineShape,
): Promise<{ engine: Engine; spans: Span[]; moved: Record<Link, number> }> {
  const spans: Span[] = [];
  const batch = chainBatch(CHAIN);
  const engine = await Engine.create({
    ...options,
    model: chainModel(CHAIN),
    exampleBatch: batch,
    execution: { onSpan: (span) => spans.push(span) },
  });
  const batches = Array.from({ length: options.gradientAccumulationSteps ?? 1 }, () => batch);
  try {
    await (
      await engine.step(batches)
    ).committed;
    spans.length = 0;
    const before = engine.bytesMoved;
    await (
      await engine.step(batches)
    ).committed;
    const moved = engine.bytesMoved;
    for (const link of Object.keys(moved) as Link[]) moved[link] -= before[link];
    return { engine, spans, moved };
  } finally {
    await engine.close();
  }
}

describe.each([
  { order: 'vertical', loads: (L: number, C: number) => 2 * L - C },
  {
    order: 'horizontal',
    loads: (L: number, C: number, G: number) => L + (2 * G - 1) * (L - C),
  },
] as const)('a step in $order order', ({ order, loads }) => {
  it.each([
    [1, 1],
    [1, 3],
    [2, 3],
    [3, 2],
    [5, 4],
  ])('through %i slots with %i micro-batches fetches what the formula says', async (slots, G) => {
    const options: EngineShape = {
      microBatchOrder: order,
      gradientAccumulationSteps: G,
      offloadParam: 'cpu',
      offloadOptimizer: 'cpu',
      hostMemory: 2 ** 27,
      optimizerWorkers: 1,
    };
    const deviceMemory = await deviceMemoryFor(
      CHAIN,
      options,
      ({ region }) => region.paramSlots === slots,
    );
    const { spans, moved } = await secondStep({ ...options, deviceMemory });
    const fetches = spans.filter(({ operation }) => operation.action.kind === 'fetch-params');
    const expected = loads(CHAIN.blocks, slots, G);
    expect(new Set(fetches.map(({ operation }) => operation.id)).size).toBe(expected);
    expect(fetches.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(expected * BLOCK_BYTES);
    expect(moved.upload).toBeGreaterThanOrEqual(expected * BLOCK_BYTES);
  });
});

/** Groups whose moments are in host memory. */
function cachedCount({ homes }: MemoryPlan): number {
  return homes.filter(({ optimizer }) => optimizer === 'host').length;
}

describe('optimizer states', () => {
  it('of groups that host memory has no room for are read and written once', async () => {
    await withFolder(async (nvmePath) => {
      const options: EngineShape = {
        offloadParam: 'cpu',
        nvmePath,
        deviceMemory: 2 ** 25,
        optimizerWorkers: 1,
      };
      // Room for the moments of some groups.
      const hostMemory = await hostMemoryFor(CHAIN, options, (plan) => cachedCount(plan) === 3);
      const { engine, spans, moved } = await secondStep({ ...options, hostMemory });
      const N = CHAIN.blocks;
      const K = cachedCount(engine.plan);
      const updates = spans.filter(({ lane, operation }) => {
        return lane === 'update' && operation.action.kind === 'update';
      });
      expect(updates).toHaveLength(N);
      const touched = updates.filter(({ operation }) => (operation.bytes.nvme_read ?? 0) > 0);
      expect(touched.length).toBeLessThanOrEqual(N - K + 1);
      // Two moments of each, there and back.
      expect(moved.nvme_read).toBe(touched.length * 2 * BLOCK_BYTES);
      expect(moved.nvme_write).toBe(touched.length * 2 * BLOCK_BYTES);
    });
  });
});

// Goal: rows of a table that are read ahead of its update have the update's bits, whatever of it has
// been done by then.
import { describe, expect, it } from 'vitest';
import type { ComputeDtype, StateName } from '../../core/types.js';
import { kernels } from '../../tiers/native/binding.js';
import type { AdamwScalars } from '../../tiers/native/native-binding.js';
import type { StateLocation } from '../../tiers/state-location.js';
import { Engine } from '../../src/engine/engine.js';
import type { Span } from '../../src/engine/step-executor.js';
import { TableUpdates } from '../../src/engine/table-updates.js';
import { layoutParameters, type Shard } from '../../src/plan/parameter-layout.js';
import { stateType } from '../../src/plan/placement.js';
import { tiedBatch, tiedModel, type TiedShape } from './tied-model.js';

/** Three shards, of which the first is more than a piece. */
const ROWS = 3000;
const COLUMNS = 1000;
const SUB_GROUP = 1_310_720;
const STATES = ['param', 'master_lo', 'grad', 'exp_avg', 'exp_avg_sq'] as const;
const SCALARS: AdamwScalars = {
  learningRate: 0.01,
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0.1,
  step: 3,
  gradScale: 0.7,
};

function tableOf(dtype: ComputeDtype) {
  const model = tiedModel({ vocab: ROWS, width: COLUMNS, blocks: 0, length: 1 });
  const layout = layoutParameters(model.blocks, SUB_GROUP);
  const address = layout.params.get('table')!;
  const states = new Map(
    STATES.map((state): [StateName, Uint8Array<SharedArrayBuffer>] => {
      const bytesPer = stateType(state, dtype) === 'float32' ? 4 : 2;
      const bytes = new Uint8Array(new SharedArrayBuffer(ROWS * COLUMNS * bytesPer));
      if (bytesPer === 2) {
        const halves = new Uint16Array(bytes.buffer);
        for (let i = 0; i < halves.length; i += 1) halves[i] = 0x3f00 + ((i * 7) % 200);
      } else {
        const floats = new Float32Array(bytes.buffer);
        for (let i = 0; i < floats.length; i += 1) floats[i] = 0.001 + ((i * 13) % 997) / 997;
      }
      return [state, bytes];
    }),
  );
  const bytesOf = (state: StateName, shard: Shard, start: number, length: number) => {
    const bytesPer = stateType(state, dtype) === 'float32' ? 4 : 2;
    const first = (shard.start + start) * bytesPer;
    return states.get(state)!.subarray(first, first + length * bytesPer);
  };
  const store = {
    layout,
    dtype,
    group: () => layout.groups[0]!,
    location: (shard: Shard, state: StateName): StateLocation => ({
      kind: 'memory',
      tier: 'host',
      bytes: bytesOf(state, shard, 0, shard.length),
    }),
  };
  const tables = new TableUpdates(store, new Set([0]));
  /** What a worker does to a piece. */
  const update = (shard: Shard, start: number, length: number): void => {
    const of = (state: StateName) => bytesOf(state, shard, start, length);
    const floats = (state: StateName) => {
      const { buffer, byteOffset, byteLength } = of(state);
      return new Float32Array(buffer, byteOffset, byteLength / 4);
    };
    const halves = (state: StateName) => {
      const { buffer, byteOffset, byteLength } = of(state);
      return new Uint16Array(buffer, byteOffset, byteLength / 2);
    };
    const rest = [floats('grad'), floats('exp_avg'), floats('exp_avg_sq'), SCALARS] as const;
    if (dtype === 'float32') kernels().adamw(floats('param'), ...rest);
    else kernels().adamwSplit(halves('param'), halves('master_lo'), ...rest);
  };
  const bytesPer = dtype === 'float32' ? 4 : 2;
  const row = async (index: number): Promise<Uint8Array> => {
    const target = new Uint8Array(new SharedArrayBuffer(COLUMNS * bytesPer));
    const scratch = new Uint8Array(new SharedArrayBuffer(COLUMNS * 10));
    await tables.read(address, index * COLUMNS, target, scratch);
    return target;
  };
  const stored = (index: number): Uint8Array =>
    states.get('param')!.slice(index * COLUMNS * bytesPer, (index + 1) * COLUMNS * bytesPer);
  return { layout, tables, update, row, stored, states };
}

/** Rows within pieces, across pieces and across shards. */
const SAMPLE = [0, 7, 1048, 1049, 1310, 1311, 2621, 2622, 2999];

describe.each(['float32', 'bfloat16'] as const)('a table in %s', (dtype) => {
  it('gives rows as an update that has not begun will leave them, and changes nothing', async () => {
    const { layout, tables, update, row, stored, states } = tableOf(dtype);
    const before = SAMPLE.map(stored);
    expect(await Promise.all(SAMPLE.map(row))).toEqual(before);
    tables.expect(3, () => SCALARS);
    const moments = Buffer.from(states.get('exp_avg')!);
    const ahead = await Promise.all(SAMPLE.map(row));
    expect(SAMPLE.map(stored)).toEqual(before);
    expect(Buffer.compare(moments, states.get('exp_avg')!)).toBe(0);
    for (const shard of layout.groups[0]!.shards) {
      for (const piece of tables.piecesOf(shard)!) {
        await tables.update(piece, 3, async (onStart) => {
          onStart();
          update(shard, piece.start, piece.length);
        });
      }
    }
    expect(SAMPLE.map(stored)).not.toEqual(before);
    expect(ahead).toEqual(SAMPLE.map(stored));
    // Once it is over, rows are what is stored.
    expect(await Promise.all(SAMPLE.map(row))).toEqual(ahead);
  });

  it('waits for a piece that is in work, and for no other', async () => {
    const { layout, tables, update, row, stored } = tableOf(dtype);
    tables.expect(3, () => SCALARS);
    const [shard] = layout.shards;
    const [first, second] = tables.piecesOf(shard!)!;
    let finish = (): void => undefined;
    const atWork = tables.update(first!, 3, async (onStart) => {
      onStart();
      await new Promise<void>((resolve) => (finish = resolve));
      update(shard!, first!.start, first!.length);
    });
    const waiting = tables.update(second!, 3, () => new Promise(() => undefined));
    void waiting;
    await row(2999);
    await row(1200);
    let isRead = false;
    const held = row(7).finally(() => (isRead = true));
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(isRead).toBe(false);
    finish();
    await atWork;
    expect(await held).toEqual(stored(7));
  });

  it('fails whoever reads a piece whose update failed', async () => {
    const { layout, tables, row } = tableOf(dtype);
    tables.expect(3, () => SCALARS);
    const [piece] = tables.piecesOf(layout.shards[0]!)!;
    const failing = tables.update(piece!, 3, (onStart) => {
      onStart();
      return Promise.reject(new Error('a worker died'));
    });
    await expect(failing).rejects.toThrow('a worker died');
    await expect(row(3)).rejects.toThrow('a worker died');
  });
});

const SHAPE: TiedShape = { vocab: 300, width: 32, blocks: 2, length: 12 };

describe.each(['float32', 'bfloat16'] as const)('steps of a tied model in %s', (dtype) => {
  it.each([1, 0])(
    'read rows before the table is updated, with the bits of steps that wait (max_grad_norm %s)',
    async (maxGradNorm) => {
      const run = async (updateMs: number, waits: boolean) => {
        const spans: Span[] = [];
        const engine = await Engine.create({
          model: tiedModel(SHAPE),
          exampleBatch: tiedBatch(SHAPE),
          device: 'native',
          dtype,
          deviceMemory: 2 ** 24,
          hostMemory: 2 ** 26,
          subGroupSize: 4096,
          gradientAccumulationSteps: 2,
          offloadParam: 'cpu',
          offloadOptimizer: 'cpu',
          optimizerWorkers: 1,
          optimizer: { learningRate: 0.01, maxGradNorm },
          execution: {
            pace: ({ action }) => (action.kind === 'update' ? updateMs / 1000 : 0),
            onSpan: (span) => spans.push(span),
          },
        });
        try {
          const losses: number[] = [];
          for (let step = 0; step < 4; step += 1) {
            const batches = [tiedBatch(SHAPE, step), tiedBatch(SHAPE, step + 9)];
            losses.push((await engine.step(batches)).loss);
            if (waits) await engine.drain();
          }
          return { losses, table: await engine.readParameter('table'), spans };
        } finally {
          await engine.close();
        }
      };
      const ahead = await run(20, false);
      const waited = await run(0, true);
      expect(ahead.losses).toEqual(waited.losses);
      expect(
        Buffer.compare(new Uint8Array(ahead.table.buffer), new Uint8Array(waited.table.buffer)),
      ).toBe(0);
      const at = (kind: string, step: number) =>
        ahead.spans.filter((span) => span.step === step && span.operation.action.kind === kind);
      const lastTableUpdate = Math.max(
        ...at('update', 2).flatMap(({ operation: { action }, end }) =>
          action.kind === 'update' && action.group === 0 ? [end] : [],
        ),
      );
      expect(Math.max(...at('fetch-rows', 3).map(({ end }) => end))).toBeLessThan(lastTableUpdate);
      expect(Math.min(...at('forward-tile', 3).map(({ start }) => start))).toBeGreaterThan(
        lastTableUpdate - 20,
      );
    },
  );
});

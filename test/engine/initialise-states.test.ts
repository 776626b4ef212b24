// Goal: whatever fails while states are loaded, the error arrives once, when no write is in flight.
import * as tf from '@tensorflow/tfjs-core';
import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CHUNK_ELEMENTS } from '../../core/types.js';
import { Engine } from '../../src/engine/engine.js';
import type { DenseBlock, MicroBatch, Model, ParamSpec } from '../../src/model/block.js';
import type { FaultRule } from '../../tiers/nvme/fault-plan.js';
import { SimulatedBackend } from '../../tiers/nvme/simulated-backend.js';
import { withFolder } from './run-engine.js';

/** Two whole chunks and a part of one: three pieces of weights. */
const WEIGHT: ParamSpec = {
  name: 'w',
  shape: [4, (2 * CHUNK_ELEMENTS + 4096) / 4],
  init: { kind: 'zeros' },
  decay: true,
};
const LENGTH = 2 * CHUNK_ELEMENTS + 4096;

const BATCH: MicroBatch = {
  fields: { x: { data: Float32Array.of(1, 2, 3, 4), shape: [1, 4] } },
  weight: 1,
};

const valueAt = (index: number): number => ((index * 7919) % 1000) / 1000 - 0.5;

/** @param failsAt the first element whose reading fails */
function modelOf(failsAt = Infinity): Model {
  const block: DenseBlock = {
    kind: 'dense',
    name: 'mean',
    kindKey: 'mean',
    owns: [WEIGHT],
    uses: ['w'],
    reads: ['x'],
    apply: ({ w }, _inputs, { tensors }) => [
      tf.reshape(tf.mean(tf.matMul(tensors['x'] as tf.Tensor2D, w as tf.Tensor2D)), [1]),
    ],
  };
  return {
    name: 'mean',
    blocks: [block],
    source: ({ name, shape }) => ({
      name,
      shape,
      read: async (offset, target) => {
        await Promise.resolve();
        if (offset + target.length > failsAt) throw new Error('the file has gone');
        for (let i = 0; i < target.length; i += 1) target[i] = valueAt(offset + i);
      },
    }),
    close: () => Promise.resolve(),
  };
}

interface Loading {
  readonly folder: string;
  readonly rules?: readonly FaultRule[];
  readonly failsAt?: number;
}

function create({ folder, rules = [], failsAt }: Loading): Promise<Engine> {
  return Engine.create({
    model: modelOf(failsAt),
    exampleBatch: BATCH,
    dtype: 'bfloat16',
    deviceMemory: '64MiB',
    hostMemory: '64MiB',
    nvmePath: folder,
    offloadParam: 'nvme',
    offloadOptimizer: 'nvme',
    optimizerWorkers: 1,
    io: { backend: new SimulatedBackend({ rules }) },
  });
}

/** Headers of the four states on NVMe, their 3 chunks each, and the headers again, sealed. */
const HEADER_WRITES = 4;
const WRITES = 4 + 12 + 4;

describe('loading onto NVMe', () => {
  it('brings every value, and zeros for gradients', async () => {
    await withFolder(async (folder) => {
      const engine = await create({ folder });
      const values = await engine.readParameter('w');
      const gradient = await engine.readGradient('w');
      await engine.close();
      expect(values).toHaveLength(LENGTH);
      const expected = Float32Array.from({ length: LENGTH }, (_, index) => valueAt(index));
      expect(values.every((value, index) => value === expected[index])).toBe(true);
      expect(gradient.every((value) => value === 0)).toBe(true);
    });
  });

  it('reports the write that fails, whichever it is, and leaves no file', async () => {
    for (let nth = HEADER_WRITES + 1; nth <= WRITES; nth += 1) {
      await withFolder(async (folder) => {
        const loading = create({ folder, rules: [{ op: 'write', kind: 'ENOSPC', nth }] });
        await expect(loading, `write ${nth}`).rejects.toMatchObject({ code: 'NVME_FULL' });
        expect(readdirSync(folder)).toEqual([]);
      });
    }
    await withFolder(async (folder) => {
      const rule = { op: 'write', kind: 'ENOSPC', nth: WRITES + 1 } as const;
      await (await create({ folder, rules: [rule] })).close();
    });
  });

  it("reports a source's error after the writes of the pieces before", async () => {
    for (const failsAt of [1, CHUNK_ELEMENTS + 1, 2 * CHUNK_ELEMENTS + 1]) {
      await withFolder(async (folder) => {
        await expect(create({ folder, failsAt })).rejects.toThrow('the file has gone');
        expect(readdirSync(folder)).toEqual([]);
      });
    }
  });
});

// Goal: budgets, errors and clean-up of the engine are what its docstrings promise.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import * as tf from '@tensorflow/tfjs-core';
import { describe, expect, it, vi } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/engine-options.js';
import { CpuDevice } from '../../tiers/device/cpu-device.js';
import type { Device } from '../../tiers/device/device.js';
import { NativeDevice } from '../../tiers/device/native/native-device.js';
import { SimulatedBackend } from '../../tiers/nvme/simulated-backend.js';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { DEVICES, fixtureFolder, readReference, toMicroBatch, withFolder } from './run-engine.js';
import { smallBatch, smallModel } from './small-model.js';

const OPTIONS = {
  deviceMemory: '4MiB',
  hostMemory: '16MiB',
  optimizerWorkers: 1,
  optimizer: { learningRate: 1e-2 },
} satisfies Partial<EngineOptions>;

async function small(options: Partial<EngineOptions> = {}): Promise<Engine> {
  return Engine.create({
    model: smallModel(),
    exampleBatch: smallBatch(),
    ...OPTIONS,
    ...options,
  });
}

const openDescriptors = (): number => readdirSync('/proc/self/fd').length;

describe('a step', () => {
  it('lowers the loss of a chain of plain tfjs functions', async () => {
    const engine = await small();
    const first = await engine.step([smallBatch()]);
    let last = first;
    for (let step = 0; step < 20; step += 1) last = await engine.step([smallBatch()]);
    expect(last.step).toBe(21);
    expect(last.loss).toBeLessThan(first.loss * 0.8);
    const { loss, terms } = await engine.evaluate([smallBatch()]);
    expect(loss).toBeLessThan(last.loss);
    expect(terms).toBe(512);
    await engine.close();
  });

  it('refuses more micro-batches than planned, and the engine stays usable for close only', async () => {
    const engine = await small();
    await expect(engine.step([smallBatch(), smallBatch()])).rejects.toMatchObject({
      code: 'DATA_INVALID',
    });
    await expect(engine.step([smallBatch()])).rejects.toMatchObject({ code: 'ENGINE_FAILED' });
    await engine.close();
    await expect(engine.step([smallBatch()])).rejects.toMatchObject({ code: 'ENGINE_CLOSED' });
  });

  it('refuses a second call while one is running', async () => {
    const engine = await small();
    const running = engine.step([smallBatch()]);
    await expect(engine.step([smallBatch()])).rejects.toMatchObject({ code: 'ENGINE_FAILED' });
    await running;
    await engine.close();
  });
});

describe('a non-finite value', () => {
  it.each([
    ['loss', Number.NaN, 'output'],
    ['gradient', undefined, 'output'],
  ])(
    'in the %s names step, block and last good state, and commits nothing',
    async (_, value, block) => {
      // The second case: losses near the largest float32 are finite, their gradient is not.
      const model = value === undefined ? smallModel({ scaleLoss: 1e38 }) : smallModel();
      const engine = await Engine.create({ model, exampleBatch: smallBatch(), ...OPTIONS });
      const failing = engine.step([smallBatch(value)]);
      await expect(failing).rejects.toMatchObject({ code: 'NON_FINITE', facts: { step: 1 } });
      await expect(failing).rejects.toThrow(new RegExp(`block ${block}.*step 1;.*none saved`));
      await expect(engine.save('/dev/null/x')).rejects.toMatchObject({ code: 'ENGINE_FAILED' });
      await engine.close();
    },
  );

  it('leaves the weights as they were and names the last save', async () => {
    await withFolder(async (folder) => {
      const engine = await small();
      await engine.step([smallBatch()]);
      const saved = join(folder, 'saved');
      await engine.save(saved);
      await expect(engine.step([smallBatch(Number.POSITIVE_INFINITY)])).rejects.toThrow(
        `step 1 in ${saved}`,
      );
      expect(existsSync(join(saved, 'model.safetensors'))).toBe(true);
      await engine.close();
    });
  });
});

it('notices when no trainable weight changes in step 1', async () => {
  const model = smallModel({ ignoreParams: true });
  const engine = await Engine.create({ model, exampleBatch: smallBatch(), ...OPTIONS });
  const { committed } = await engine.step([smallBatch()]);
  await expect(committed).rejects.toMatchObject({ code: 'WEIGHTS_UNCHANGED' });
  await engine.close();
});

it('accepts a first step with a learning rate of zero', async () => {
  const engine = await small();
  await (
    await engine.step([smallBatch()], { learningRate: 0 })
  ).committed;
  await (
    await engine.step([smallBatch()])
  ).committed;
  await engine.close();
});

describe.each(DEVICES)('budgets on %s', (device) => {
  it('names the smallest that work; these work, and a byte less is refused', async () => {
    const batch = toMicroBatch(readReference('gpt2-tiny'));
    const model = await loadPretrained(fixtureFolder('gpt2-tiny'));
    await withFolder(async (nvmePath) => {
      const create = (deviceMemory: number, hostMemory: number): Promise<Engine> =>
        Engine.create({
          ...OPTIONS,
          device,
          model,
          exampleBatch: batch,
          nvmePath,
          deviceMemory,
          hostMemory,
          gradientAccumulationSteps: 3,
          subGroupSize: 4096,
        });
      const refusal: { facts: { neededDeviceBytes: number; neededHostBytes: number } } =
        await create(1, 1).then(
          () => expect.unreachable('one byte is enough'),
          (error: unknown) => error as never,
        );
      const { neededDeviceBytes: least, neededHostBytes: host } = refusal.facts;
      const engine = await create(least, host);
      for (let step = 0; step < 2; step += 1) await engine.step([batch, batch, batch]);
      await engine.drain();
      expect(engine.peakBytes.device).toBeLessThanOrEqual(least);
      expect(engine.peakBytes.host).toBeLessThanOrEqual(host);
      // The plan's peaks are bounds, and not loose ones.
      expect(engine.plan.peakBytes.device).toBeLessThan(1.25 * engine.peakBytes.device);
      expect(engine.peakBytes.host).toBe(engine.plan.peakBytes.host);
      expect(engine.peakBytes.nvme).toBe(engine.plan.peakBytes.nvme);
      await engine.close();
      const why = { code: 'BUDGET_TOO_SMALL' };
      await expect(create(least - 1, host)).rejects.toMatchObject(why);
      await expect(create(least, host - 1)).rejects.toMatchObject(why);
    });
    await model.close();
  });
});

it('takes the horizontal order when only that fits', async () => {
  const batch = toMicroBatch(readReference('gpt2-tiny'));
  const model = await loadPretrained(fixtureFolder('gpt2-tiny'));
  await withFolder(async (nvmePath) => {
    const create = (deviceMemory: number, order?: 'vertical'): Promise<Engine> =>
      Engine.create({
        ...OPTIONS,
        model,
        exampleBatch: batch,
        nvmePath,
        deviceMemory,
        gradientAccumulationSteps: 4,
        ...(order === undefined ? {} : { microBatchOrder: order }),
      });
    const needed = async (order?: 'vertical'): Promise<number> =>
      create(1, order).then(
        () => expect.unreachable('one byte is enough'),
        (error: unknown) =>
          (error as { facts: { neededDeviceBytes: number } }).facts.neededDeviceBytes,
      );
    const smallest = await needed();
    expect(smallest).toBeLessThan(await needed('vertical'));
    const engine = await create(smallest);
    expect(engine.plan.order).toBe('horizontal');
    await engine.close();
    const roomy = await create(2 ** 22);
    expect(roomy.plan.order).toBe('vertical');
    await roomy.close();
  });
  await model.close();
});

it.runIf(DEVICES.includes('native'))(
  'bfloat16 weights take half the device bytes, whatever kernels read them, and the plan holds',
  async () => {
    const needed = async (dtype: 'float32' | 'bfloat16', shift?: number): Promise<number> => {
      const options = {
        dtype,
        device: 'native',
        offloadParam: 'cpu',
        offloadOptimizer: 'cpu',
        model: smallModel(shift === undefined ? {} : { shift }),
      } as const;
      const refusal: { facts: { neededDeviceBytes: number } } = await small({
        ...options,
        deviceMemory: 1,
      }).then(
        () => expect.unreachable('one byte is enough'),
        (error: unknown) => error as never,
      );
      const { neededDeviceBytes } = refusal.facts;
      const engine = await small({ ...options, deviceMemory: neededDeviceBytes });
      for (let step = 0; step < 2; step += 1) await engine.step([smallBatch()]);
      expect(engine.peakBytes.device).toBeLessThanOrEqual(neededDeviceBytes);
      await engine.close();
      return neededDeviceBytes;
    };
    const matrixBytes = 64 * 64 * 4;
    const saved = (await needed('float32')) - (await needed('bfloat16'));
    expect(saved).toBeGreaterThanOrEqual(matrixBytes / 2);
    // The slot of the region is rounded up to whole pages.
    expect(saved).toBeLessThan(matrixBytes / 2 + 2 * 4096);
    // The copy that the addition needs is in the plan.
    expect(await needed('bfloat16', 0.5)).toBeGreaterThan(await needed('float32', 0.5));
  },
);

describe.each(DEVICES)('clean-up on %s', (device) => {
  it('gives tensors, descriptors and files back, after steps and after errors', async () => {
    await withFolder(async (nvmePath) => {
      const nvme = {
        device,
        nvmePath,
        offloadParam: 'nvme',
        offloadOptimizer: 'nvme',
      } as const;
      await (await small(nvme)).close(); // Loads what stays loaded in a process.
      const tensors = tf.memory().numTensors;
      const descriptors = openDescriptors();
      const made = device === 'cpu' ? CpuDevice : NativeDevice;
      const create = vi.spyOn(made, 'create');
      const engine = await small(nvme);
      const { ledger } = create.mock.results[0]!.value as Device;
      create.mockRestore();
      const held = tf.memory().numTensors;
      const { liveBytes, liveCount } = ledger;
      for (let step = 0; step < 3; step += 1) {
        await (
          await engine.step([smallBatch()])
        ).committed;
        expect(tf.memory().numTensors).toBe(held);
        expect([ledger.liveBytes, ledger.liveCount]).toEqual([liveBytes, liveCount]);
        expect(ledger.resetPeak()).toBeGreaterThan(liveBytes);
      }
      await engine.close();
      await engine.close();
      const failing = await small(nvme);
      await failing.step([smallBatch(Number.NaN)]).catch(() => undefined);
      await failing.close();
      expect(tf.memory().numTensors).toBe(tensors);
      expect(openDescriptors()).toBe(descriptors);
      expect(readdirSync(nvmePath)).toEqual([]);
    });
  });

  it('leaves nothing behind when creation fails', async () => {
    await withFolder(async (nvmePath) => {
      const tensors = tf.memory().numTensors;
      const model = { ...smallModel(), source: () => Promise.reject(new Error('no weights')) };
      const descriptors = openDescriptors();
      await expect(
        Engine.create({
          ...OPTIONS,
          device,
          model,
          exampleBatch: smallBatch(),
          nvmePath,
          offloadParam: 'nvme',
        }),
      ).rejects.toThrow('no weights');
      expect(openDescriptors()).toBe(descriptors);
      expect(readdirSync(nvmePath)).toEqual([]);
      expect(tf.memory().numTensors).toBe(tensors);
    });
  });
});

describe('a failing disk', () => {
  it.each([
    ['main thread', 'EIO', 'IO_ERROR'],
    ['main thread', 'short', 'IO_SHORT'],
    ['main thread', 'ENOSPC', 'NVME_FULL'],
    ['worker', 'EIO', 'IO_ERROR'],
    ['worker', 'ENOSPC', 'NVME_FULL'],
  ] as const)(
    'in the %s: %s ends the step as %s, and close still works',
    async (where, kind, code) => {
      await withFolder(async (nvmePath) => {
        const op = kind === 'ENOSPC' ? 'write' : 'read';
        // 24 writes of states and headers precede the first step; reads start with it.
        const rule = {
          op,
          kind,
          ...(where === 'worker' ? {} : { nth: op === 'write' ? 26 : 3 }),
        } as const;
        const inMain = where === 'main thread' ? [rule] : [];
        const engine = await small({
          nvmePath,
          offloadParam: 'nvme',
          offloadOptimizer: 'nvme',
          // Staging and the optimizer's tiles, and no byte for gradients: these go to NVMe.
          hostMemory: 3 * 2 ** 20 + 4 * 16_384,
          io: {
            backend: new SimulatedBackend({ rules: inMain }),
            workerFaults: { rules: where === 'worker' ? [rule] : [] },
          },
        });
        const run = async (): Promise<void> => {
          for (let step = 0; step < 20; step += 1) {
            await (
              await engine.step([smallBatch()])
            ).committed;
          }
        };
        await expect(run()).rejects.toMatchObject({ code });
        await expect(engine.step([smallBatch()])).rejects.toMatchObject({ code: 'ENGINE_FAILED' });
        await engine.close();
      });
    },
  );
});

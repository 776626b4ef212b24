// Goal: the meta device allocates exactly as the native device does, and refuses to read values.
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createDevice, createMetaDevice } from '../../tiers/device/create-device.js';
import type { Device } from '../../tiers/device/device.js';
import { CpuDevice } from '../../tiers/device/cpu-device.js';
import { NativeDevice } from '../../tiers/device/native/native-device.js';
import { native } from '../../tiers/native/binding.js';

const BUDGET = 2 ** 26;

/** Runs `body` on both devices and returns what each ledger saw. */
async function ledgers(body: (device: Device) => void): Promise<unknown[]> {
  const device = NativeDevice.create({ budgetBytes: BUDGET, threads: 1 });
  const meta = createMetaDevice(device)!;
  try {
    return [device, meta].map((one) => {
      body(one);
      const { liveBytes, peakBytes, liveCount } = one.ledger;
      return { liveBytes, peakBytes, liveCount };
    });
  } finally {
    await device.dispose();
    await meta.dispose();
  }
}

const OPERATIONS: readonly ((x: Tensor, y: Tensor) => Tensor)[] = [
  (x, y) => tf.matMul(x, y, false, true),
  (x) => tf.softmax(x),
  (x, y) => tf.concat([x, y], 0),
  (x) => tf.transpose(x),
  (x) => tf.sum(x, 1, true),
  (x) => tf.slice(x, [0, 0], [1, x.shape[1]!]),
  (x) => tf.reshape(x, [-1]),
  (x, y) => tf.add(x, tf.mean(y, 0)),
  (x) => tf.tidy(() => tf.mul(tf.exp(x), tf.sub(x, 1))),
  // Without a native kernel: the shapes come from the JavaScript one.
  (x) => tf.prelu(x, tf.scalar(0.5)),
];

test.skipIf(native() === undefined)(
  'allocates like the native device, for random sequences of kernels',
  async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.nat(OPERATIONS.length - 1), { minLength: 1, maxLength: 12 }),
        fc.array(fc.boolean(), { minLength: 12, maxLength: 12 }),
        fc.integer({ min: 1, max: 70 }),
        async (sequence, disposals, width) => {
          const [onNative, onMeta] = await ledgers((device) => {
            device.run(() => {
              let x: Tensor = tf.ones([5, width]);
              for (const [index, chosen] of sequence.entries()) {
                const operation = OPERATIONS[chosen]!;
                const y = tf.fill([5, x.shape[1] ?? 1], 2);
                const result = operation(x.rank === 2 ? x : tf.reshape(x, [5, -1]), y);
                if (disposals[index] === true) x.dispose();
                y.dispose();
                const five = result.size % 5 === 0;
                x = five ? tf.reshape(result, [5, result.size / 5]) : tf.zeros([5, width]);
              }
            });
          });
          expect(onMeta).toEqual(onNative);
        },
      ),
      { numRuns: 40 },
    );
  },
  20_000,
);

test.skipIf(native() === undefined)('refuses to read values, by name', async () => {
  const device = NativeDevice.createMeta({ budgetBytes: BUDGET });
  const x = device.run(() => tf.ones([3]));
  const code = expect.objectContaining({ code: 'BLOCK_INVALID' }) as unknown;
  expect(() => device.run(() => x.dataSync())).toThrow(code);
  await expect(x.data()).rejects.toEqual(code);
  await expect(device.download(x, 0, new Float32Array(3))).rejects.toEqual(code);
  x.dispose();
  await device.dispose();
});

test.skipIf(native() === undefined)('keeps the budget, and holds no memory', async () => {
  const device = NativeDevice.createMeta({ budgetBytes: 2 ** 40 });
  const before = process.memoryUsage.rss();
  // Not tf.zeros, which makes an array of JavaScript's first.
  const x = device.run(() => tf.fill([2 ** 20, 2 ** 16], 0));
  expect(device.ledger.liveBytes).toBe(2 ** 38);
  expect(process.memoryUsage.rss() - before).toBeLessThan(2 ** 27);
  expect(() => device.run(() => tf.tile(x, [4, 1]))).toThrow(
    expect.objectContaining({ code: 'DEVICE_OUT_OF_MEMORY' }),
  );
  x.dispose();
  await device.dispose();
});

test('stands in for the native device only', async () => {
  const cpu = CpuDevice.create({ budgetBytes: BUDGET });
  expect(createMetaDevice(cpu)).toBeUndefined();
  await cpu.dispose();
  await expect(createDevice('meta', { budgetBytes: BUDGET })).rejects.toMatchObject({
    code: 'DEVICE_UNAVAILABLE',
  });
});

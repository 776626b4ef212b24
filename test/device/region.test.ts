// Goal: a region takes bytes of every stored type, gives tensors over them without charge, and
// may be filled again once the kernels that read it have run.
import * as tf from '@tensorflow/tfjs-core';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { CpuDevice } from '../../tiers/device/cpu-device.js';
import type { Device } from '../../tiers/device/device.js';
import { NativeDevice } from '../../tiers/device/native/native-device.js';
import { native } from '../../tiers/native/binding.js';

const BUDGET = 2 ** 24;
const makers: [string, () => Device][] = [['cpu', () => CpuDevice.create({ budgetBytes: BUDGET })]];
if (native() !== undefined) {
  makers.push(['native', () => NativeDevice.create({ budgetBytes: BUDGET, threads: 2 })]);
}

const bytesOf = (values: ArrayLike<number>): Uint8Array =>
  new Uint8Array(Float32Array.from(values).buffer);
/** The high halves: exact for values with few bits. */
const bf16Of = (values: ArrayLike<number>): Uint8Array => {
  const words = new Uint16Array(Float32Array.from(values).buffer);
  return new Uint8Array(words.filter((_, index) => index % 2 === 1).slice().buffer);
};

describe.each(makers)('a region on %s', (name, make) => {
  let device: Device;
  beforeEach(() => (device = make()));
  afterEach(() => device.dispose());

  test('is charged once, and its views are not', async () => {
    const region = device.reserve(5000, 'test');
    expect(device.ledger.liveBytes).toBe(8192);
    await region.write(0, bytesOf([1, 2, 3, 4]), 'float32', 'float32');
    const x = region.view(0, [2, 2], 'float32');
    expect(device.ledger.liveBytes).toBe(8192);
    const y = device.run(() => tf.matMul(x, x as tf.Tensor2D));
    expect([...(await y.data())]).toEqual([7, 10, 15, 22]);
    for (const tensor of [x, y]) tensor.dispose();
    region.dispose();
    region.dispose();
    expect(device.ledger.liveBytes).toBe(0);
    expect(device.uploadedBytes).toBe(16);
  });

  test('widens bfloat16, also from an odd address, piece by piece', async () => {
    const region = device.reserve(4096, 'test');
    const odd = new Uint8Array(9);
    odd.set(bf16Of([1.5, -2, 0.25, 8]), 1);
    await region.write(64, odd.subarray(1, 5), 'bfloat16', 'float32');
    await region.write(72, odd.subarray(5), 'bfloat16', 'float32');
    const x = region.view(64, [4], 'float32');
    expect([...(await x.data())]).toEqual([1.5, -2, 0.25, 8]);
    x.dispose();
    region.dispose();
  });

  test('is filled again after its kernels have run', async () => {
    const region = device.reserve(2 ** 20, 'test');
    const sums: tf.Tensor[] = [];
    for (let round = 1; round <= 5; round += 1) {
      await region.write(0, bytesOf(new Float32Array(2 ** 18).fill(round)), 'float32', 'float32');
      const x = region.view(0, [512, 512], 'float32');
      sums.push(device.run(() => tf.tidy(() => tf.sum(tf.matMul(x, x as tf.Tensor2D)))));
      x.dispose();
      await device.computed();
    }
    for (const [index, sum] of sums.entries()) {
      expect((await sum.data())[0]).toBe(512 ** 3 * (index + 1) ** 2);
      sum.dispose();
    }
    region.dispose();
  });

  test('refuses what lies outside', async () => {
    const region = device.reserve(64, 'test');
    const outside = async () => region.write(64, bytesOf([1]), 'float32', 'float32');
    await expect(outside()).rejects.toMatchObject({ code: 'INTERNAL' });
    region.dispose();
  });

  test.runIf(name === 'native')('keeps bfloat16 for products', async () => {
    const region = device.reserve(4096, 'test');
    await region.write(0, bf16Of([1, 2, 3, 4]), 'bfloat16', 'bfloat16');
    const w = region.view(0, [2, 2], 'bfloat16');
    const x = device.run(() => tf.tensor2d([1, 1], [1, 2]));
    const y = device.run(() => tf.matMul(x, w as tf.Tensor2D));
    expect([...(await y.data())]).toEqual([4, 6]);
    for (const tensor of [w, x, y]) tensor.dispose();
    region.dispose();
  });
});

// Goal: the native device keeps every device's promises.
import * as tf from '@tensorflow/tfjs-core';
import { describe, expect, it } from 'vitest';
import { NativeDevice } from '../../tiers/device/native/native-device.js';
import { native } from '../../tiers/native/binding.js';
import { budgetContract } from './budget-contract.js';
import { deviceContract, type DeviceCase } from './device-contract.js';

const kind: DeviceCase = {
  name: 'native',
  granuleBytes: 64,
  sliceIsView: false,
  create: (options) => NativeDevice.create(options),
};

describe.skipIf(native() === undefined)('native', () => {
  deviceContract(kind);
  budgetContract(kind);

  it('downloads what is complete beside kernels that are launched later', async () => {
    const device = NativeDevice.create({ budgetBytes: 2 ** 28 });
    try {
      const matrix = device.run(() => tf.randomUniform([1500, 1500]));
      const early = device.run(() => tf.fill([4], 7));
      const owned = device.own(early);
      const late = device.run(() => tf.matMul(matrix, matrix));
      const target = new Float32Array(new SharedArrayBuffer(16));
      const order: string[] = [];
      await Promise.all([
        device.computed().then(() => order.push('computed')),
        device.download(owned, 0, target).then(() => order.push('downloaded')),
      ]);
      expect(order).toEqual(['downloaded', 'computed']);
      expect([...target]).toEqual([7, 7, 7, 7]);
      tf.dispose([matrix, owned, late]);
    } finally {
      await device.dispose();
    }
  });

  it('downloads what is not said to be complete after all that was launched', async () => {
    const device = NativeDevice.create({ budgetBytes: 2 ** 28 });
    try {
      const matrix = device.run(() => tf.fill([1500, 1500], 2));
      const product = device.run(() => tf.matMul(matrix, matrix));
      const target = new Float32Array(new SharedArrayBuffer(4));
      await device.download(product, 1500 * 1500 - 1, target);
      expect(target[0]).toBe(4 * 1500);
      tf.dispose([matrix, product]);
    } finally {
      await device.dispose();
    }
  });
});

// Goal: the cpu device's ledger is exact, its budget is hard, and a refusal harms nothing.
import * as tf from '@tensorflow/tfjs-core';
import { expect, test } from 'vitest';
import { CpuDevice } from '../../tiers/device/cpu-device.js';
import { budgetContract, outOfMemory } from './budget-contract.js';

budgetContract({
  name: 'cpu',
  granuleBytes: 1,
  sliceIsView: true,
  create: (options) => CpuDevice.create(options),
});

test('a budget that promises more than the process has fails by the same name', async () => {
  const device = CpuDevice.create({ budgetBytes: 2 ** 50 });
  expect(() => device.beginUpload([1 << 20, 1 << 20], 'huge')).toThrow(outOfMemory({}));
  expect(() => device.arena.lease(2 ** 49, 'huge')).toThrow(outOfMemory({}));
  expect(device.ledger.liveBytes).toBe(0);
  await device.dispose();
});

test('does not charge what other users of the same backend make', async () => {
  const device = CpuDevice.create({ budgetBytes: 1000 });
  await tf.setBackend('cpu');
  const foreign = tf.ones([1000]);
  expect(device.ledger.liveBytes).toBe(0);
  const sum = device.run(() => tf.sum(foreign));
  expect(device.ledger.liveBytes).toBe(4);
  foreign.dispose();
  expect(device.ledger.liveBytes).toBe(4);
  sum.dispose();
  expect(device.ledger.liveBytes).toBe(0);
  await device.dispose();
});

/**
 * @file What one operation costs the main thread, by tinybench: a launch on the native device beside
 * the same operation on the cpu device, on tensors so small that nothing but the overhead is timed.
 *
 * Under a loader that rewrites TypeScript calls cost more than in the built library, so the device is
 * taken from dist. `medianMicroseconds` is per operation.
 */
import * as tf from '@tensorflow/tfjs-core';
import { Bench } from 'tinybench';
import type { createDevice as CreateDevice } from '../tiers/device/create-device.js';

/** Operations by name; each makes one tensor, which is disposed. */
const OPERATIONS: Readonly<Record<string, (x: tf.Tensor) => tf.Tensor>> = {
  fill: () => tf.fill([16], 1),
  add: (x) => tf.add(x, x),
  tanh: (x) => tf.tanh(x),
  sum: (x) => tf.sum(x),
};

export async function benchLaunch(): Promise<void> {
  const module = (await import(
    new URL('../dist/tiers/device/create-device.js', import.meta.url).href
  )) as { createDevice: typeof CreateDevice };
  for (const name of ['native', 'cpu']) {
    const device = await module.createDevice(name, { budgetBytes: 2 ** 24 });
    const x = device.run(() => tf.zeros([16]));
    const bench = new Bench({ time: 300, warmupTime: 100 });
    for (const [operation, run] of Object.entries(OPERATIONS)) {
      bench.add(operation, () => device.run(() => run(x).dispose()));
    }
    await bench.run();
    for (const task of bench.tasks) {
      const { result } = task;
      if (result.state !== 'completed') throw new Error(`${task.name} on ${name}: ${result.state}`);
      const median = result.latency.p50 * 1000;
      const line = {
        case: `${task.name} on ${name}`,
        medianMicroseconds: Number(median.toPrecision(3)),
      };
      process.stdout.write(`${JSON.stringify(line)}\n`);
    }
    await device.synchronize();
    x.dispose();
    await device.dispose();
  }
}

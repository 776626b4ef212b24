/**
 * @file What the device tests share: tfjs's cpu backend without a device, random tensors, bits.
 */
import '@tensorflow/tfjs-backend-cpu';
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { beforeAll } from 'vitest';

/** Members of tfjs's cpu backend that tests watch. */
interface CpuBackend {
  firstUse: boolean;
  data: { set(id: object, entry: { values?: { byteLength?: number } }): void };
}

/** Runs the tests of a file on tfjs's plain cpu backend, without its banner. */
export function useCpuBackend(): void {
  beforeAll(async () => {
    (tf.backend() as unknown as CpuBackend).firstUse = false;
    await tf.setBackend('cpu');
  });
}

/** A float32 tensor of values in [-1, 1), the same for the same seed (mulberry32). */
export function randomTensor(shape: number[], seed: number): Tensor {
  return tf.tensor(randomValues(tf.util.sizeFromShape(shape), seed), shape, 'float32');
}

/** Values in [-1, 1), the same for the same seed (mulberry32). */
export function randomValues(length: number, seed: number): Float32Array {
  let state = Math.imul(seed, 0x9e3779b1) >>> 0;
  return Float32Array.from({ length }, () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 31 - 1;
  });
}

/** The bit patterns of a float32 tensor or array. */
export function bitsOf(values: Tensor | Float32Array): Int32Array {
  const floats = values instanceof Float32Array ? values : (values.dataSync() as Float32Array);
  return new Int32Array(floats.slice().buffer);
}

/** Bytes by which tfjs's count of tensor data rises above the start while `body` runs: data is
 * counted once, however many handles share it. */
export function peakBytesOf(body: () => void): number {
  const { data } = tf.backend() as unknown as { data: PeakStorage };
  const live = new Map<object, number>();
  let liveBytes = 0;
  let peakBytes = 0;
  const set = data.set.bind(data);
  const remove = data.delete.bind(data);
  data.set = (id, entry) => {
    live.set(id, entry.values?.byteLength ?? 0);
    liveBytes += entry.values?.byteLength ?? 0;
    peakBytes = Math.max(peakBytes, liveBytes);
    set(id, entry);
  };
  data.delete = (id) => {
    liveBytes -= live.get(id) ?? 0;
    live.delete(id);
    return remove(id);
  };
  try {
    body();
  } finally {
    data.set = set;
    data.delete = remove;
  }
  return peakBytes;
}

interface PeakStorage {
  set(id: object, entry: { values?: { byteLength?: number } }): void;
  delete(id: object): boolean;
}

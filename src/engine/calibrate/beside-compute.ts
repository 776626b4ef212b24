/**
 * @file Work of the device beside which other things are measured: in a step copies, updates and
 * disks share cores, caches and memory with kernels, and take longer than alone.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import type { Device } from '../../../tiers/device/device.js';

interface ProductSizes {
  readonly rows: number;
  readonly inner: number;
  readonly columns: number;
}

/** As a block has them: its matrix is beyond a core's cache. */
const LARGE: ProductSizes = { rows: 128, inner: 1024, columns: 2048 };

/** What plain JavaScript multiplies at once. */
const SMALL: ProductSizes = { rows: 16, inner: 256, columns: 256 };

/** A small product that takes so long is large. */
const SLOW_SECONDS = 2e-3;

/** Bytes of the device that operands and two results take. */
export const PRODUCT_BYTES =
  4 * (LARGE.rows * LARGE.inner + LARGE.inner * LARGE.columns + 2 * LARGE.rows * LARGE.columns);

/** Multiply-adds per second of a product now, launching included. @throws DEVICE_OUT_OF_MEMORY */
export async function productRate(device: Device): Promise<number> {
  const rateOf = (sizes: ProductSizes): Promise<number> =>
    withProduct(device, sizes, async (launch) => {
      const seconds: number[] = [];
      for (let round = 0; round < 3; round += 1) {
        const start = performance.now();
        launch();
        await device.computed();
        seconds.push((performance.now() - start) / 1000);
      }
      return multiplyAdds(sizes) / Math.min(...seconds);
    });
  const rate = await rateOf(SMALL);
  return multiplyAdds(SMALL) / rate > SLOW_SECONDS ? rate : rateOf(LARGE);
}

function multiplyAdds({ rows, inner, columns }: ProductSizes): number {
  return rows * inner * columns;
}

/**
 * Runs `body` while products run one after the other, launched one ahead as in a step; alone on a
 * device that computes before it returns. Takes `PRODUCT_BYTES` of the device.
 *
 * @throws DEVICE_OUT_OF_MEMORY, what `body` throws
 */
export async function besideCompute<T>(device: Device, body: () => Promise<T>): Promise<T> {
  if (!device.capabilities.overlap) return body();
  return withProduct(device, LARGE, async (launch) => {
    let isOver = false;
    const run = async (): Promise<void> => {
      let before = Promise.resolve();
      while (!isOver) {
        launch();
        const ran = device.computed();
        await before;
        before = ran;
      }
      await before;
    };
    const running = run();
    running.catch(() => undefined); // Awaited below.
    try {
      return await body();
    } finally {
      isOver = true;
      await running;
    }
  });
}

async function withProduct<T>(
  device: Device,
  { rows, inner, columns }: ProductSizes,
  body: (launch: () => void) => Promise<T>,
): Promise<T> {
  const operands: Tensor[] = [];
  try {
    const matrix = (height: number, width: number): Tensor => {
      const tensor = device.run(() => tf.fill([height, width], 2 ** -7));
      operands.push(tensor);
      return tensor;
    };
    const a = matrix(rows, inner);
    const b = matrix(inner, columns);
    return await body(() => {
      device.run(() => tf.matMul(a, b)).dispose();
    });
  } finally {
    for (const tensor of operands) tensor.dispose();
  }
}

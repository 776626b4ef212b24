/**
 * @file Runs one tfjs kernel on the `cpu` backend or on `native`, and measures how far apart
 * numbers are. A run that leaves a tensor behind, or falls back to `cpu`, fails.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { KernelBackend, NamedAttrMap, NamedTensorMap } from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { expect } from 'vitest';
import { withBackend } from '../../tiers/device/backend-scope.js';
import { CPU_BACKEND_NAME, cpuBackend } from '../../tiers/device/cpu-backend.js';
import { ensureGradients } from '../../tiers/device/gradients.js';
import { registerNativeKernels } from '../../tiers/device/native/kernels/index.js';
import { NativeBackend } from '../../tiers/device/native/native-backend.js';
import type { NativeArray, NativeDtype } from '../../tiers/device/native/native-dtype.js';
import { NATIVE_BACKEND_NAME } from '../../tiers/device/native/register-kernel.js';

ensureGradients();
registerNativeKernels();

/** Where a kernel runs. */
export interface Place {
  readonly name: 'cpu' | 'native';
  readonly backend: KernelBackend;
}

/** A tensor as the host sees it. */
export interface Value {
  readonly data: NativeArray;
  readonly shape: readonly number[];
  readonly dtype: NativeDtype;
}

/** The reference backend. */
export const cpu: Place = { name: CPU_BACKEND_NAME, backend: cpuBackend() };

/** A native backend of its own. */
export function nativePlace(threads: number): Place {
  const backend = new NativeBackend({ budgetBytes: 2 ** 26, threads });
  return { name: NATIVE_BACKEND_NAME, backend };
}

/** The native backend of most tests. */
export const native = nativePlace(2);

/** Kernels without a float64 twin run on both. */
export const PLACES = [cpu, native] as const;

/** A tensor's value from plain numbers. */
export function value(
  dtype: NativeDtype,
  shape: readonly number[],
  data: readonly number[],
): Value {
  const arrays = { float32: Float32Array, int32: Int32Array, bool: Uint8Array } as const;
  return { dtype, shape, data: arrays[dtype].from(data) };
}

/** Outputs of the kernel, in order. */
export function run(
  place: Place,
  kernelName: string,
  inputs: Readonly<Record<string, Value>> | readonly Value[],
  attrs: object = {},
): Value[] {
  return withBackend(place.name, place.backend, () => {
    const before = tf.memory();
    const tensors = tf.tidy((): tf.Tensor | tf.Tensor[] => {
      const made = Object.entries(inputs).map(
        ([name, { data, shape, dtype }]): [string, tf.Tensor] => [
          name,
          tf.tensor(data, [...shape], dtype),
        ],
      );
      const operands = Array.isArray(inputs)
        ? (made.map(([, tensor]) => tensor) as unknown as NamedTensorMap)
        : Object.fromEntries(made);
      return tf
        .engine()
        .runKernel<tf.Tensor | tf.Tensor[]>(kernelName, operands, attrs as NamedAttrMap);
    });
    const list = Array.isArray(tensors) ? tensors : [tensors];
    const values = list.map((tensor) => ({
      data: tensor.dataSync().slice(),
      shape: tensor.shape,
      dtype: tensor.dtype as NativeDtype,
    }));
    tf.dispose(list);
    if (place.backend instanceof NativeBackend) {
      expect([...place.backend.fallbackCounts], 'kernels that ran elsewhere').toEqual([]);
    }
    const after = tf.memory();
    expect(after.numTensors, `${kernelName} on ${place.name} keeps tensors`).toBe(
      before.numTensors,
    );
    expect(after.numDataBuffers, `${kernelName} on ${place.name} keeps memory`).toBe(
      before.numDataBuffers,
    );
    return values;
  });
}

/** The one output of the kernel. */
export function runOne(...args: Parameters<typeof run>): Value {
  const outputs = run(...args);
  expect(outputs).toHaveLength(1);
  return outputs[0]!;
}

/** Distance in units in the last place of float32 at `want`; 0 for two NaN or equal infinities. */
export function ulpDistance(got: number, want: number): number {
  if (Number.isNaN(want) || Number.isNaN(got))
    return Number.isNaN(want) && Number.isNaN(got) ? 0 : Infinity;
  const rounded = Math.fround(want);
  if (Object.is(got, rounded) || got === rounded) return 0;
  if (!Number.isFinite(got) || !Number.isFinite(rounded)) {
    // Beside the largest float32, infinity is its neighbour.
    return Math.abs(want) > 3.4028234e38 && Math.abs(got) > 3.4028234e38 ? 1 : Infinity;
  }
  const exponent = Math.max(-126, Math.floor(Math.log2(Math.abs(want))));
  return Math.abs(got - want) / 2 ** (exponent - 23);
}

/** Fails unless types, shapes and numbers are the same; NaN equals NaN, and 0 equals -0. */
export function expectSame(got: Value, want: Value, what: string): void {
  expect(got.dtype, what).toBe(want.dtype);
  expect(got.shape, what).toEqual(want.shape);
  expect(got.data.length, what).toBe(want.data.length);
  for (let i = 0; i < want.data.length; i++) {
    const [a, b] = [got.data[i]!, want.data[i]!];
    if (a !== b && !(Number.isNaN(a) && Number.isNaN(b))) {
      expect.fail(`${what}: element ${i} is ${a}, not ${b}`);
    }
  }
}

/** Any float32: every bit pattern, and often the ones near which functions bend. */
export const anyFloat = fc.oneof(
  { weight: 3, arbitrary: fc.float({ min: -8, max: 8 }) },
  { weight: 2, arbitrary: fc.float() },
  {
    weight: 1,
    arbitrary: fc.constantFrom(NaN, Infinity, -Infinity, 0, -0, 1, -1, 1e-45, -1e-45, 88.8, -103.9),
  },
);

/** Integers of which products and sums overflow. */
export const anyInt = fc.oneof(fc.integer({ min: -5, max: 5 }), fc.integer());

const ELEMENTS: Record<NativeDtype, fc.Arbitrary<number>> = {
  float32: anyFloat,
  int32: anyInt,
  bool: fc.integer({ min: 0, max: 1 }),
};

/** Any tensor of a shape. */
export function anyValue(
  dtype: NativeDtype,
  shape: readonly number[],
  element = ELEMENTS[dtype],
): fc.Arbitrary<Value> {
  const length = tf.util.sizeFromShape([...shape]);
  return fc
    .array(element, { minLength: length, maxLength: length })
    .map((data) => value(dtype, shape, data));
}

/** Dimensions 0 (seldom) to `max`. */
export function anyShape(minRank: number, maxRank: number, max = 5): fc.Arbitrary<number[]> {
  const dim = fc.oneof(
    { weight: 12, arbitrary: fc.integer({ min: 1, max }) },
    { weight: 1, arbitrary: fc.constant(0) },
  );
  return fc.array(dim, { minLength: minRank, maxLength: maxRank });
}

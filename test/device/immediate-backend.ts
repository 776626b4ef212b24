/**
 * @file Runs kernels of the native device on given threads and instruction sets, one at a time and
 * without a backend: arrays in, arrays out.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { native } from '../../tiers/native/binding.js';
import type { Isa } from '../../tiers/native/native-binding.js';
import { registerNativeKernels } from '../../tiers/device/native/kernels/index.js';

/** A dense array with its shape; int32 where it is an Int32Array. */
export interface ArrayOperand {
  readonly shape: readonly number[];
  readonly values: Float32Array | Int32Array;
}

/** Where a run takes place. */
export interface RunPlace {
  readonly isa: Isa;
  readonly threads: number;
}

const ALIGNMENT = 64;

/** The part of NativeBackend that kernels use, over plain memory that is never reused. */
class ImmediateBackend {
  readonly memory: Uint8Array;
  readonly #threads: number;
  readonly #offsets = new Map<object, number>();
  #used = 0;

  constructor(byteLength: number, threads: number) {
    this.memory = new Uint8Array(new SharedArrayBuffer(byteLength));
    // Whatever a kernel does not write shows as NaN.
    new Uint32Array(this.memory.buffer).fill(0x7fc00000);
    this.#threads = threads;
  }

  makeOutput(shape: readonly number[], dtype: 'float32' | 'int32'): TensorInfo {
    const dataId = {};
    this.#offsets.set(dataId, this.#take(4 * tf.util.sizeFromShape([...shape])));
    return { dataId, shape: [...shape], dtype };
  }

  offsetOf(tensor: TensorInfo): number {
    return this.#offsets.get(tensor.dataId)!;
  }

  launch(kernelId: number, args: readonly number[]): void {
    native()!.runKernelNow(kernelId, this.memory, Float64Array.from(args), this.#threads);
  }

  alias(x: TensorInfo, shape: readonly number[]): TensorInfo {
    return { ...x, shape: [...shape] };
  }

  withScratch<T>(byteLength: number, body: (offset: number) => T): T {
    return body(this.#take(byteLength));
  }

  place({ shape, values }: ArrayOperand): TensorInfo {
    const tensor = this.makeOutput(shape, values instanceof Int32Array ? 'int32' : 'float32');
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    this.memory.set(bytes, this.offsetOf(tensor));
    return tensor;
  }

  floatsOf(tensor: TensorInfo): Float32Array {
    const length = tf.util.sizeFromShape(tensor.shape);
    return new Float32Array(this.memory.buffer, this.offsetOf(tensor), length).slice();
  }

  #take(byteLength: number): number {
    const offset = this.#used;
    this.#used += Math.ceil(Math.max(1, byteLength) / ALIGNMENT) * ALIGNMENT;
    if (this.#used > this.memory.byteLength) throw new Error('the test needs more memory');
    return offset;
  }
}

/** The outputs of tfjs kernel `name` of the native device. */
export function runImmediately(
  name: string,
  inputs: Readonly<Record<string, ArrayOperand | undefined>>,
  attrs: object,
  { isa, threads }: RunPlace,
): { shape: number[]; values: Float32Array }[] {
  registerNativeKernels();
  const addon = native()!;
  const before = addon.isa();
  addon.setIsa(isa);
  try {
    const given = Object.values(inputs).reduce((sum, x) => sum + (x?.values.byteLength ?? 0), 0);
    // Outputs and scratch of every kernel are at most as large as its inputs, but for rounding.
    const backend = new ImmediateBackend(4 * given + 2 ** 16, threads);
    const placed = Object.entries(inputs).flatMap(([key, operand]) =>
      operand === undefined ? [] : [[key, backend.place(operand)] as const],
    );
    const result = tf.getKernel(name, 'native').kernelFunc({
      inputs: Object.fromEntries(placed),
      attrs: attrs as tf.NamedAttrMap,
      backend,
    });
    const outputs = Array.isArray(result) ? result : [result];
    return outputs.map((output) => ({ shape: output.shape, values: backend.floatsOf(output) }));
  } finally {
    addon.setIsa(before);
  }
}

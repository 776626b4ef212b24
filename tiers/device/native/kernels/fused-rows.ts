/**
 * @file Norms, activations and rotary embedding as one launch each, and their gradients.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { assert } from '../../../../core/errors.js';
import { kernelIdOf } from '../kernel-id.js';
import type { NativeBackend } from '../native-backend.js';
import { registerNative, type NativeKernel, type NativeKernelCall } from '../register-kernel.js';
import { FUSED, type NormAttrs, type RotaryAttrs } from './fused-names.js';

/** In place of the offset of an operand that is not there. */
const ABSENT = -1;

function lengthOf(tensor: TensorInfo): number {
  return tf.util.sizeFromShape(tensor.shape);
}

function offsetOr(backend: NativeBackend, tensor: TensorInfo | undefined): number {
  return tensor === undefined ? ABSENT : backend.offsetOf(tensor);
}

/** Number and width of the rows of x. */
function rowsOf(x: TensorInfo): [rows: number, width: number] {
  const width = x.shape.at(-1)!;
  return [lengthOf(x) / width, width];
}

/** Launches `name` over the tensors, then the numbers. */
function launch(
  backend: NativeBackend,
  name: string,
  tensors: readonly (TensorInfo | undefined)[],
  numbers: readonly number[],
): void {
  const offsets = tensors.map((tensor) => offsetOr(backend, tensor));
  backend.launch(kernelIdOf(name), [...offsets, ...numbers]);
}

function checkVector(tensor: TensorInfo | undefined, width: number): void {
  assert(tensor === undefined || lengthOf(tensor) === width, "a norm's weight has the row's width");
}

/** {x [N, C], weight [C], bias [C] or none} → [y, mean [N, 1] unless RMS, rstd [N, 1]] */
function norm(centred: boolean): NativeKernel {
  return ({ inputs, attrs, backend }: NativeKernelCall) => {
    const { epsilon } = attrs as unknown as NormAttrs;
    const x = inputs['x']!;
    const [rows, width] = rowsOf(x);
    const bias = centred ? inputs['bias'] : undefined;
    checkVector(inputs['weight'], width);
    checkVector(bias, width);
    const y = backend.makeOutput(x.shape, 'float32');
    const mean = centred ? backend.makeOutput([rows, 1], 'float32') : undefined;
    const rstd = backend.makeOutput([rows, 1], 'float32');
    const tensors = [x, inputs['weight'], bias, y, mean, rstd];
    launch(backend, 'norm', tensors, [rows, width, epsilon]);
    return mean === undefined ? [y, rstd] : [y, mean, rstd];
  };
}

/** {dy, x, weight, mean or none, rstd} → dx */
function normGradX({ inputs, backend }: NativeKernelCall): TensorInfo {
  const { dy, x, weight, mean, rstd } = inputs;
  const dx = backend.makeOutput(x!.shape, 'float32');
  launch(backend, 'normGradX', [dy, x, weight, mean, rstd, dx], rowsOf(x!));
  return dx;
}

/** {dy, x, mean or none, rstd} → gradient of the weight, [C] */
function normGradWeight({ inputs, backend }: NativeKernelCall): TensorInfo {
  const { dy, x, mean, rstd } = inputs;
  const [rows, width] = rowsOf(x!);
  const dWeight = backend.makeOutput([width], 'float32');
  launch(backend, 'normGradWeight', [dy, x, mean, rstd, dWeight], [rows, width]);
  return dWeight;
}

/** The inputs of `names`, of one shape, → `outputs` tensors of that shape. */
function elementwise(kernel: string, names: readonly string[], outputs: number): NativeKernel {
  return ({ inputs, backend }) => {
    const tensors = names.map((name) => inputs[name]!);
    const { shape } = tensors[0]!;
    for (const tensor of tensors) {
      assert(tensor.shape.join() === shape.join(), 'operands of one shape', { kernel });
    }
    const results = Array.from({ length: outputs }, () => backend.makeOutput(shape, 'float32'));
    launch(backend, kernel, [...tensors, ...results], [lengthOf(tensors[0]!)]);
    return outputs === 1 ? results[0]! : results;
  };
}

/** {x, table [2, T, D/2] of cosines and sines} → x turned, of its shape */
function rotary({ inputs, attrs, backend }: NativeKernelCall): TensorInfo {
  const { width, length, rowsPerPosition, direction } = attrs as unknown as RotaryAttrs;
  const { x, table } = inputs;
  assert(
    width % 2 === 0 && lengthOf(x!) % width === 0 && lengthOf(table!) === length * width,
    'a rotary table fits its rows',
  );
  const y = backend.makeOutput(x!.shape, 'float32');
  const rows = lengthOf(x!) / width;
  launch(backend, 'rotary', [x, table, y], [rows, width, rowsPerPosition, length, direction]);
  return y;
}

export function registerFusedRows(): void {
  registerNative(FUSED.layerNorm, norm(true));
  registerNative(FUSED.rmsNorm, norm(false));
  registerNative(FUSED.normGradX, normGradX);
  registerNative(FUSED.normGradWeight, normGradWeight);
  registerNative(FUSED.geluNew, elementwise('geluNew', ['x'], 1));
  registerNative(FUSED.geluNewGrad, elementwise('geluNewGrad', ['dy', 'x'], 1));
  registerNative(FUSED.swiglu, elementwise('swiglu', ['gate', 'up'], 1));
  registerNative(FUSED.swigluGrad, elementwise('swigluGrad', ['dy', 'gate', 'up'], 2));
  registerNative(FUSED.rotary, rotary);
}

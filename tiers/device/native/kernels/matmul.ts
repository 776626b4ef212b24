/**
 * @file BatchMatMul and _FusedMatMul (native/gemm.cc): C = op(A)·op(B) with broadcast batches.
 *
 * Each element is one chain of fused multiply-adds over ascending k, so that a product has the same
 * bits alone and in a batch. A shared right operand makes the batch one tall product.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { NamedAttrMap, TensorInfo } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../../../core/errors.js';
import { kernelIdOf } from '../kernel-id.js';
import type { NativeBackend } from '../native-backend.js';
import { registerNative } from '../register-kernel.js';
import { castTensor, withDtype } from './cast.js';
import { gemmArgs, gemmIntArgs, type GemmCall, type GemmOperand } from './gemm-args.js';
import { broadcastStrides, mergeDims, type WalkDim } from './layout.js';

interface MatMulOptions {
  readonly transposeA: boolean;
  readonly transposeB: boolean;
  /** Of one value per column. */
  readonly bias?: TensorInfo | undefined;
  readonly relu?: boolean;
}

interface MatMulShape {
  readonly outShape: number[];
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** The batch, its strides in whole matrices of a and b; the last one goes into a launch. */
  readonly batchDims: readonly WalkDim[];
}

function matMulShape(a: TensorInfo, b: TensorInfo, options: MatMulOptions): MatMulShape {
  const { transposeA, transposeB } = options;
  const [aRows, aColumns] = a.shape.slice(-2) as [number, number];
  const [bRows, bColumns] = b.shape.slice(-2) as [number, number];
  const [m, k] = transposeA ? [aColumns, aRows] : [aRows, aColumns];
  const [bInner, n] = transposeB ? [bColumns, bRows] : [bRows, bColumns];
  const [aBatch, bBatch] = [a.shape.slice(0, -2), b.shape.slice(0, -2)];
  if (a.shape.length < 2 || b.shape.length < 2 || k !== bInner) {
    throw new SpillwayError('BLOCK_INVALID', 'matMul needs matrices whose inner dimensions agree', {
      aShape: a.shape.map(String),
      bShape: b.shape.map(String),
      transposeA,
      transposeB,
    });
  }
  const batchShape = tf.backend_util.assertAndGetBroadcastShape(aBatch, bBatch);
  const outShape = [...batchShape, m, n];
  const [aStrides, bStrides] = [
    broadcastStrides(aBatch, batchShape),
    broadcastStrides(bBatch, batchShape),
  ];
  const batchDims = mergeDims(
    batchShape.map((length, i) => ({ length, strides: [aStrides[i]!, bStrides[i]!] })),
  );
  const [only] = batchDims;
  // Rows of all batch elements follow each other and meet the same b.
  if (batchDims.length === 1 && !transposeA && only!.strides[0] === 1 && only!.strides[1] === 0) {
    return { outShape, m: m * only!.length, n, k, batchDims: [{ length: 1, strides: [0, 0] }] };
  }
  return { outShape, m, n, k, batchDims };
}

/** Where element `index` of an operand lies, and how it is stored. */
function at(
  backend: NativeBackend,
  kernel: 'gemm' | 'gemmInt',
  x: TensorInfo,
  index: number,
): Pick<GemmOperand, 'offset' | 'type'> {
  if (kernel === 'gemmInt') return { offset: backend.offsetOf(x) + 4 * index };
  const { offset, type } = backend.operandOf(x);
  return { offset: offset + (type === 'bfloat16' ? 2 : 4) * index, type };
}

/** Launches one product per element of the outer batch dimensions. */
function launchProducts(
  backend: NativeBackend,
  kernel: 'gemm' | 'gemmInt',
  [a, b, out]: readonly [TensorInfo, TensorInfo, TensorInfo],
  { m, n, k, batchDims }: MatMulShape,
  { transposeA, transposeB, bias, relu }: MatMulOptions,
): void {
  const { length: batch, strides } = batchDims.at(-1)!;
  const outer = batchDims.slice(0, -1);
  const launches = outer.reduce((count, { length }) => count * length, 1);
  for (let launch = 0; launch < launches; launch++) {
    // Position in the outer dimensions, in matrices of a and of b.
    let [aMatrix, bMatrix, rest] = [0, 0, launch];
    for (let i = outer.length - 1; i >= 0; i--) {
      const { length, strides: steps } = outer[i]!;
      aMatrix += (rest % length) * steps[0]!;
      bMatrix += (rest % length) * steps[1]!;
      rest = Math.floor(rest / length);
    }
    const call: GemmCall = {
      ...{ m, n, k, batch },
      a: {
        ...at(backend, kernel, a, aMatrix * m * k),
        transposed: transposeA,
        leading: transposeA ? m : k,
        batchStride: (strides[0] ?? 0) * m * k,
      },
      b: {
        ...at(backend, kernel, b, bMatrix * k * n),
        transposed: transposeB,
        leading: transposeB ? k : n,
        batchStride: (strides[1] ?? 0) * k * n,
      },
      c: { offset: backend.offsetOf(out) + 4 * launch * batch * m * n },
      ...(bias === undefined ? {} : { biasOffset: backend.offsetOf(bias) }),
      activation: relu === true ? 'relu' : 'none',
    };
    const args = kernel === 'gemm' ? gemmArgs(call) : gemmIntArgs(call);
    backend.launch(kernelIdOf(kernel), args);
  }
}

/** A new tensor: op(a)·op(b) (+ bias, relu), float32. */
function floatMatMul(
  backend: NativeBackend,
  a: TensorInfo,
  b: TensorInfo,
  options: MatMulOptions,
): TensorInfo {
  const shape = matMulShape(a, b, options);
  const out = backend.makeOutput(shape.outShape, 'float32');
  if (tf.util.sizeFromShape(shape.outShape) === 0) return out;
  launchProducts(backend, 'gemm', [a, b, out], shape, options);
  return out;
}

/** tfjs's matMul: float32, or for int32 operands int32 modulo 2^32; of bools, whether any pair. */
function matMul(
  backend: NativeBackend,
  a: TensorInfo,
  b: TensorInfo,
  options: MatMulOptions,
): TensorInfo {
  if (a.dtype === 'float32' || b.dtype === 'float32') {
    return withDtype(backend, a, 'float32', (aFloat) =>
      withDtype(backend, b, 'float32', (bFloat) => floatMatMul(backend, aFloat, bFloat, options)),
    );
  }
  return withDtype(backend, a, 'int32', (aInt) =>
    withDtype(backend, b, 'int32', (bInt) => {
      const shape = matMulShape(aInt, bInt, options);
      const out = backend.makeOutput(shape.outShape, 'int32');
      if (tf.util.sizeFromShape(shape.outShape) > 0) {
        launchProducts(backend, 'gemmInt', [aInt, bInt, out], shape, options);
      }
      if (a.dtype !== 'bool') return out;
      try {
        return castTensor(backend, out, 'bool');
      } finally {
        backend.disposeData(out.dataId);
      }
    }),
  );
}

/** Frees `x` and returns what another kernel of the backend makes of it. */
function thenKernel(
  backend: NativeBackend,
  name: string,
  x: TensorInfo,
  inputs: Readonly<Record<string, TensorInfo>>,
  attrs: NamedAttrMap = {},
): TensorInfo {
  const kernel = tf.getKernel(name, 'native');
  try {
    return kernel.kernelFunc({ inputs, attrs, backend }) as TensorInfo;
  } finally {
    backend.disposeData(x.dataId);
  }
}

function activate(
  backend: NativeBackend,
  x: TensorInfo,
  attrs: tf._FusedMatMulAttrs,
  preluWeights: TensorInfo | undefined,
): TensorInfo {
  switch (attrs.activation as string | undefined) {
    case undefined:
    case 'linear':
      return x;
    case 'relu':
      return thenKernel(backend, tf.Relu, x, { x });
    case 'relu6':
      return thenKernel(backend, tf.Relu6, x, { x });
    case 'elu':
      return thenKernel(backend, tf.Elu, x, { x });
    case 'sigmoid':
      return thenKernel(backend, tf.Sigmoid, x, { x });
    case 'leakyrelu':
      return thenKernel(backend, tf.LeakyRelu, x, { x }, { alpha: attrs.leakyreluAlpha ?? 0.2 });
    case 'prelu':
      if (preluWeights !== undefined) {
        return thenKernel(backend, tf.Prelu, x, { x, alpha: preluWeights });
      }
  }
  throw new SpillwayError('BLOCK_INVALID', 'fused matMul has no such activation', {
    activation: attrs.activation,
  });
}

/** tfjs's fused matMul; a bias per column and relu are part of the product's last pass. */
function fusedMatMul(
  backend: NativeBackend,
  inputs: Readonly<Record<string, TensorInfo>>,
  attrs: tf._FusedMatMulAttrs,
): TensorInfo {
  const { a, b, bias, preluActivationWeights } = inputs as unknown as tf._FusedMatMulInputs;
  const { transposeA, transposeB, activation } = attrs;
  const columns = b.shape.at(transposeB ? -2 : -1);
  const isFloat = a.dtype === 'float32' && b.dtype === 'float32';
  const perColumn =
    isFloat &&
    bias?.dtype === 'float32' &&
    bias.shape.at(-1) === columns &&
    tf.util.sizeFromShape(bias.shape) === columns;
  const relu = isFloat && activation === 'relu' && (bias === undefined || perColumn);
  const product = matMul(backend, a, b, {
    transposeA,
    transposeB,
    bias: perColumn ? bias : undefined,
    relu,
  });
  const biased =
    bias === undefined || perColumn
      ? product
      : thenKernel(backend, tf.Add, product, { a: product, b: bias });
  return relu ? biased : activate(backend, biased, attrs, preluActivationWeights);
}

export function registerMatMul(): void {
  registerNative(tf.BatchMatMul, ({ inputs, attrs, backend }) => {
    const { transposeA, transposeB } = attrs as unknown as tf.BatchMatMulAttrs;
    return matMul(backend, inputs['a']!, inputs['b']!, { transposeA, transposeB });
  });
  registerNative(tf._FusedMatMul, ({ inputs, attrs, backend }) =>
    fusedMatMul(backend, inputs, attrs as unknown as tf._FusedMatMulAttrs),
  );
}

/**
 * @file Elementwise kernels of two operands, with broadcasting (native/binary.cc).
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../../../core/errors.js';
import { kernelIdOf } from '../kernel-id.js';
import type { NativeBackend } from '../native-backend.js';
import { nativeDtype, type NativeDtype } from '../native-dtype.js';
import { registerNative } from '../register-kernel.js';
import { withDtype } from './cast.js';
import { broadcastStrides, mergeDims } from './layout.js';

/** Most merged dimensions of the C++ kernels. */
const MAX_RANK = 6;

const SUFFIX = { float32: 'Float', int32: 'Int', bool: 'Bool' } as const;

/** Stem of the C++ kernels' names, and the result's type; without one the operands'. */
interface BinarySpec {
  readonly stem: string;
  readonly out?: NativeDtype;
  /** Both operands are converted to it first. */
  readonly operands?: NativeDtype;
}

const BINARY: Readonly<Record<string, BinarySpec>> = {
  [tf.Add]: { stem: 'add' },
  [tf.Sub]: { stem: 'sub' },
  [tf.Multiply]: { stem: 'mul' },
  [tf.RealDiv]: { stem: 'div' },
  [tf.FloorDiv]: { stem: 'floorDiv', out: 'int32' },
  [tf.Mod]: { stem: 'mod' },
  [tf.Maximum]: { stem: 'maximum' },
  [tf.Minimum]: { stem: 'minimum' },
  [tf.Pow]: { stem: 'pow' },
  [tf.SquaredDifference]: { stem: 'squaredDifference' },
  [tf.Equal]: { stem: 'equal', out: 'bool' },
  [tf.NotEqual]: { stem: 'notEqual', out: 'bool' },
  [tf.Less]: { stem: 'less', out: 'bool' },
  [tf.LessEqual]: { stem: 'lessEqual', out: 'bool' },
  [tf.Greater]: { stem: 'greater', out: 'bool' },
  [tf.GreaterEqual]: { stem: 'greaterEqual', out: 'bool' },
  [tf.LogicalAnd]: { stem: 'logicalAnd', out: 'bool', operands: 'bool' },
  [tf.LogicalOr]: { stem: 'logicalOr', out: 'bool', operands: 'bool' },
};

function launchBinary(
  backend: NativeBackend,
  spec: BinarySpec,
  a: TensorInfo,
  b: TensorInfo,
): TensorInfo {
  const shape = tf.backend_util.assertAndGetBroadcastShape(a.shape, b.shape);
  const dtype = nativeDtype(a.dtype);
  const out = backend.makeOutput(shape, spec.out ?? dtype);
  if (tf.util.sizeFromShape(shape) === 0) return out;
  const aStrides = broadcastStrides(a.shape, shape);
  const bStrides = broadcastStrides(b.shape, shape);
  const dims = mergeDims(
    shape.map((length, k) => ({ length, strides: [aStrides[k]!, bStrides[k]!] })),
  );
  if (dims.length > MAX_RANK) {
    throw new SpillwayError(
      'BLOCK_INVALID',
      'the native device broadcasts over at most 6 dimensions',
      {
        aShape: a.shape.map(String),
        bShape: b.shape.map(String),
      },
    );
  }
  backend.launch(kernelIdOf(`${spec.stem}${SUFFIX[dtype]}`), [
    backend.offsetOf(a),
    backend.offsetOf(b),
    backend.offsetOf(out),
    dims.length,
    ...dims.map(({ length }) => length),
    ...dims.map(({ strides }) => strides[0] ?? 1),
    ...dims.map(({ strides }) => strides[1] ?? 1),
  ]);
  return out;
}

function runBinary(
  backend: NativeBackend,
  spec: BinarySpec,
  a: TensorInfo,
  b: TensorInfo,
): TensorInfo {
  const dtype = spec.operands ?? tf.upcastType(a.dtype, b.dtype);
  return withDtype(backend, a, dtype, ($a) =>
    withDtype(backend, b, dtype, ($b) => launchBinary(backend, spec, $a, $b)),
  );
}

/** The sum of tensors of one shape, left to right. */
function addAll(backend: NativeBackend, tensors: readonly TensorInfo[]): TensorInfo {
  const [first] = tensors;
  if (tensors.length === 1) return backend.alias(first!, first!.shape);
  const dtype = first!.dtype === 'float32' ? 'float32' : 'int32';
  const out = backend.makeOutput(first!.shape, dtype);
  const length = tf.util.sizeFromShape(first!.shape);
  if (length === 0) return out;
  backend.launch(kernelIdOf(dtype === 'float32' ? 'addNFloat' : 'addNInt'), [
    backend.offsetOf(out),
    length,
    tensors.length,
    ...tensors.map((tensor) => backend.offsetOf(tensor)),
  ]);
  return out;
}

export function registerBinary(): void {
  for (const [kernelName, spec] of Object.entries(BINARY)) {
    registerNative(kernelName, ({ inputs, backend }) =>
      runBinary(backend, spec, inputs['a']!, inputs['b']!),
    );
  }
  registerNative(tf.Square, ({ inputs, backend }) =>
    runBinary(backend, BINARY[tf.Multiply]!, inputs['x']!, inputs['x']!),
  );
  registerNative(tf.AddN, ({ inputs, backend }) =>
    addAll(backend, inputs as unknown as TensorInfo[]),
  );
}

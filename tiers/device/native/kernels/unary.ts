/**
 * @file Elementwise kernels of one operand (native/unary.cc).
 *
 * An operation without a kernel for int32 or bool computes in float32 and converts back, as far as
 * tfjs keeps the operand's type there.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { NamedAttrMap, TensorInfo } from '@tensorflow/tfjs-core';
import { kernelIdOf } from '../kernel-id.js';
import type { NativeBackend } from '../native-backend.js';
import type { NativeDtype } from '../native-dtype.js';
import { registerNative } from '../register-kernel.js';
import { castTensor, withDtype } from './cast.js';

interface UnarySpec {
  readonly float: string;
  /** Kernel for int32; `same` where integers are unchanged. */
  readonly int?: string;
  /** Type of the result; without it the operand's. */
  readonly out?: NativeDtype;
  readonly parameters?: (attrs: NamedAttrMap) => number[];
}

const FLOAT = 'float32';

const UNARY: Readonly<Record<string, UnarySpec>> = {
  [tf.Abs]: { float: 'absFloat', int: 'absInt' },
  [tf.Neg]: { float: 'negFloat', int: 'negInt' },
  [tf.Sign]: { float: 'signFloat', int: 'signInt' },
  [tf.Relu]: { float: 'reluFloat', int: 'reluInt' },
  [tf.Floor]: { float: 'floorFloat', int: 'same' },
  [tf.Ceil]: { float: 'ceilFloat', int: 'same' },
  [tf.Round]: { float: 'roundFloat', int: 'same' },
  [tf.Sqrt]: { float: 'sqrtFloat', out: FLOAT },
  [tf.Rsqrt]: { float: 'rsqrtFloat', out: FLOAT },
  [tf.Reciprocal]: { float: 'reciprocalFloat' },
  [tf.Exp]: { float: 'expFloat', out: FLOAT },
  [tf.Expm1]: { float: 'expm1Float', out: FLOAT },
  [tf.Log]: { float: 'logFloat', out: FLOAT },
  [tf.Log1p]: { float: 'log1pFloat', out: FLOAT },
  [tf.Sin]: { float: 'sinFloat', out: FLOAT },
  [tf.Cos]: { float: 'cosFloat', out: FLOAT },
  [tf.Tanh]: { float: 'tanhFloat', out: FLOAT },
  [tf.Sigmoid]: { float: 'sigmoidFloat', out: FLOAT },
  [tf.Softplus]: { float: 'softplusFloat', out: FLOAT },
  [tf.Erf]: { float: 'erfFloat', out: FLOAT },
  [tf.Elu]: { float: 'eluFloat', out: FLOAT },
  [tf.Relu6]: { float: 'relu6Float' },
  [tf.LeakyRelu]: {
    float: 'leakyReluFloat',
    out: FLOAT,
    parameters: (attrs) => [(attrs as unknown as tf.LeakyReluAttrs).alpha],
  },
  [tf.Step]: {
    float: 'stepFloat',
    parameters: (attrs) => [(attrs as unknown as tf.StepAttrs).alpha],
  },
  [tf.ClipByValue]: {
    float: 'clipFloat',
    parameters: (attrs) => {
      const { clipValueMin, clipValueMax } = attrs as unknown as tf.ClipByValueAttrs;
      return [clipValueMin, clipValueMax];
    },
  },
  [tf.IsNan]: { float: 'isNanFloat', out: 'bool' },
  [tf.IsInf]: { float: 'isInfFloat', out: 'bool' },
  [tf.IsFinite]: { float: 'isFiniteFloat', out: 'bool' },
};

/** A new tensor by the elementwise kernel `name`; operand and result have the kernel's types. */
export function launchUnary(
  backend: NativeBackend,
  name: string,
  x: TensorInfo,
  dtype: string,
  parameters: readonly number[] = [],
): TensorInfo {
  const out = backend.makeOutput(x.shape, dtype);
  const length = tf.util.sizeFromShape(x.shape);
  if (length === 0) return out;
  const args = [backend.offsetOf(x), backend.offsetOf(out), length, ...parameters];
  backend.launch(kernelIdOf(name), args);
  return out;
}

function runUnary(
  spec: UnarySpec,
  backend: NativeBackend,
  x: TensorInfo,
  attrs: NamedAttrMap,
): TensorInfo {
  const parameters = spec.parameters?.(attrs) ?? [];
  if (x.dtype !== FLOAT && spec.int === 'same') return backend.alias(x, x.shape);
  if (x.dtype === 'int32' && spec.int !== undefined) {
    return launchUnary(backend, spec.int, x, spec.out ?? 'int32', parameters);
  }
  return withDtype(backend, x, FLOAT, (operand) => {
    const wanted = spec.out ?? x.dtype;
    const direct = wanted === 'bool' && spec.out === 'bool' ? 'bool' : FLOAT;
    const result = launchUnary(backend, spec.float, operand, direct, parameters);
    if (wanted === direct) return result;
    try {
      return castTensor(backend, result, wanted);
    } finally {
      backend.disposeData(result.dataId);
    }
  });
}

export function registerUnary(): void {
  for (const [kernelName, spec] of Object.entries(UNARY)) {
    registerNative(kernelName, ({ inputs, attrs, backend }) =>
      runUnary(spec, backend, inputs['x']!, attrs),
    );
  }
  registerNative(tf.LogicalNot, ({ inputs, backend }) =>
    withDtype(backend, inputs['x']!, 'bool', (x) =>
      launchUnary(backend, 'logicalNotBool', x, 'bool'),
    ),
  );
}

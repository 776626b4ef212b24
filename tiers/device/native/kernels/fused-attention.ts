/**
 * @file Causal attention and its gradient: where the operands of each layout lie (see
 * native/fused-attention.cc for the arithmetic).
 */
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { assert } from '../../../../core/errors.js';
import { kernelIdOf } from '../kernel-id.js';
import type { NativeBackend } from '../native-backend.js';
import { registerNative, type NativeKernelCall } from '../register-kernel.js';
import { FUSED, type AttentionAttrs } from './fused-names.js';

/** Elements from one batch entry, head and token to the next. */
type Strides = readonly [batch: number, head: number, token: number];

/** A [B, heads, T, D] operand inside a tensor: its first byte and its strides. */
interface Operand {
  readonly offset: number;
  readonly strides: Strides;
}

const FLOAT_BYTES = 4;
const NO_DOCUMENTS = -1;

function rowStrides({ length, width }: AttentionAttrs, rowWidth: number): Strides {
  return [length * rowWidth, width, rowWidth];
}

/** Strides of q, or of k and v, when each has a tensor of its own. */
function stridesOf(attrs: AttentionAttrs, heads: number): Strides {
  const { layout, length, width } = attrs;
  if (layout === 'planes') return [heads * length * width, length * width, width];
  return rowStrides(attrs, heads * width);
}

/** Queries, keys and values, in one tensor or three. */
function operandsOf(
  attrs: AttentionAttrs,
  tensors: readonly TensorInfo[],
  backend: NativeBackend,
): [Operand, Operand, Operand] {
  const { heads, keyHeads, width } = attrs;
  const offsets = tensors.map((tensor) => backend.offsetOf(tensor));
  if (attrs.layout === 'joined') {
    const strides = rowStrides(attrs, (heads + 2 * keyHeads) * width);
    const at = (column: number): Operand => {
      return { offset: offsets[0]! + FLOAT_BYTES * column, strides };
    };
    return [at(0), at(heads * width), at((heads + keyHeads) * width)];
  }
  const keyStrides = stridesOf(attrs, keyHeads);
  return [
    { offset: offsets[0]!, strides: stridesOf(attrs, heads) },
    { offset: offsets[1]!, strides: keyStrides },
    { offset: offsets[2]!, strides: keyStrides },
  ];
}

/** Shapes of the tensors that hold q, k and v, in order. */
function operandShapes(attrs: AttentionAttrs): number[][] {
  const { layout, batch, length, heads, keyHeads, width } = attrs;
  if (layout === 'joined') return [[batch * length, (heads + 2 * keyHeads) * width]];
  return [heads, keyHeads, keyHeads].map((count) =>
    layout === 'planes' ? [batch, count, length, width] : [batch * length, count * width],
  );
}

function outputShape(attrs: AttentionAttrs): number[] {
  const { layout, batch, length, heads, width } = attrs;
  return layout === 'planes' ? [batch, heads, length, width] : [batch * length, heads * width];
}

/** The tensors that hold q, k and v: one or three, of the shapes that the layout says. */
function checkedTensors(
  attrs: AttentionAttrs,
  inputs: NativeKernelCall['inputs'],
): readonly TensorInfo[] {
  const shapes = operandShapes(attrs);
  const tensors = shapes.map((_, index) => inputs[['q', 'k', 'v'][index]!]);
  assert(attrs.heads % attrs.keyHeads === 0, 'key-value heads divide the heads', {
    heads: attrs.heads,
    keyHeads: attrs.keyHeads,
  });
  return shapes.map((shape, index) => {
    const tensor = tensors[index];
    assert(
      tensor?.dtype === 'float32' && tensor.shape.join() === shape.join(),
      'attention operands are float32 of the shape that their layout says',
      { layout: attrs.layout, expected: shape.join(), actual: tensor?.shape.join() ?? 'none' },
    );
    return tensor;
  });
}

/** Arguments that both kernels take: documents, B, T, H, Hkv, D. */
function shapeArguments(
  attrs: AttentionAttrs,
  documents: TensorInfo | undefined,
  backend: NativeBackend,
): number[] {
  const { batch, length, heads, keyHeads, width } = attrs;
  if (documents !== undefined) {
    assert(
      documents.dtype === 'int32' && documents.shape.join() === `${batch},${length}`,
      'documents are int32 [B, T]',
    );
  }
  const offset = documents === undefined ? NO_DOCUMENTS : backend.offsetOf(documents);
  return [offset, batch, length, heads, keyHeads, width];
}

/** {q, k, v or none, documents or none} → [output, lse [B, H, T]] */
function attention({ inputs, attrs, backend }: NativeKernelCall): TensorInfo[] {
  const shape = attrs as unknown as AttentionAttrs;
  const tensors = checkedTensors(shape, inputs);
  const out = backend.makeOutput(outputShape(shape), 'float32');
  const lse = backend.makeOutput([shape.batch, shape.heads, shape.length], 'float32');
  const operands = operandsOf(shape, tensors, backend);
  backend.launch(kernelIdOf('attention'), [
    ...operands.map(({ offset }) => offset),
    backend.offsetOf(out),
    backend.offsetOf(lse),
    ...shapeArguments(shape, inputs['documents'], backend),
    ...operands.flatMap(({ strides }) => strides),
    ...stridesOf(shape, shape.heads),
  ]);
  return [out, lse];
}

/** {q, k, v or none, output, lse, dy, documents or none} → gradients of q, k, v, of their shapes */
function attentionGrad({ inputs, attrs, backend }: NativeKernelCall): TensorInfo[] {
  const shape = attrs as unknown as AttentionAttrs;
  const tensors = checkedTensors(shape, inputs);
  const gradients = operandShapes(shape).map((each) => backend.makeOutput(each, 'float32'));
  const operands = operandsOf(shape, tensors, backend);
  const targets = operandsOf(shape, gradients, backend);
  const deltaBytes = FLOAT_BYTES * shape.batch * shape.heads * shape.length;
  backend.withScratch(deltaBytes, (delta) => {
    backend.launch(kernelIdOf('attentionGrad'), [
      ...operands.map(({ offset }) => offset),
      ...['output', 'lse', 'dy'].map((name) => backend.offsetOf(inputs[name]!)),
      delta,
      ...targets.map(({ offset }) => offset),
      ...shapeArguments(shape, inputs['documents'], backend),
      ...operands.flatMap(({ strides }) => strides),
      ...stridesOf(shape, shape.heads),
      ...targets.flatMap(({ strides }) => strides),
    ]);
  });
  return gradients;
}

export function registerFusedAttention(): void {
  registerNative(FUSED.attention, attention);
  registerNative(FUSED.attentionGrad, attentionGrad);
}

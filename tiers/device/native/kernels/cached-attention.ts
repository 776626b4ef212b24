/**
 * @file Attention of new rows to cached ones: where the operands lie (see
 * native/cached-attention.cc for the arithmetic).
 */
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { assert } from '../../../../core/errors.js';
import { kernelIdOf } from '../kernel-id.js';
import { registerNative, type NativeKernelCall } from '../register-kernel.js';
import { FUSED, type CachedAttentionAttrs } from './fused-names.js';

/** A float32 matrix with rows of `width` elements. */
function checked(tensor: TensorInfo | undefined, width: number, name: string): TensorInfo {
  assert(
    tensor?.dtype === 'float32' && tensor.shape.length === 2 && tensor.shape[1] === width,
    'operands of cached attention are float32 rows of their heads',
    { name, width, shape: tensor?.shape.join() ?? 'none' },
  );
  return tensor;
}

/** {q [M, H·D], k and v [M, Hkv·D], cachedK and cachedV [P, Hkv·D] or none} → output [M, H·D] */
function cachedAttention({ inputs, attrs, backend }: NativeKernelCall): TensorInfo {
  const { heads, keyHeads, width } = attrs as unknown as CachedAttentionAttrs;
  const keyWidth = keyHeads * width;
  const q = checked(inputs['q'], heads * width, 'q');
  const added = [checked(inputs['k'], keyWidth, 'k'), checked(inputs['v'], keyWidth, 'v')];
  const cached = ['cachedK', 'cachedV']
    .filter((name) => inputs[name] !== undefined)
    .map((name) => checked(inputs[name], keyWidth, name));
  assert(heads % keyHeads === 0, 'key-value heads divide the heads', { heads, keyHeads });
  assert(cached.length !== 1, 'keys and values are cached together');
  const [queries, first] = [q.shape[0]!, cached[0]?.shape[0] ?? 0];
  assert(
    added.every(({ shape }) => shape[0] === queries) &&
      cached.every(({ shape }) => shape[0] === first),
    'there is a key and a value for every position',
  );
  const out = backend.makeOutput(q.shape, 'float32');
  // Without cached rows nothing is read there; the new ones stand in.
  const places = [q, ...added, ...(cached.length === 0 ? added : cached), out];
  backend.launch(kernelIdOf('cachedAttention'), [
    ...places.map((tensor) => backend.offsetOf(tensor)),
    ...[first, queries, heads, keyHeads, width],
    ...[heads * width, keyWidth, keyWidth],
  ]);
  return out;
}

export function registerCachedAttention(): void {
  registerNative(FUSED.cachedAttention, cachedAttention);
}

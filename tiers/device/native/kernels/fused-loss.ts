/**
 * @file Cross-entropy over a tile of the vocabulary: the carry of an online softmax, and the
 * gradient of the logits.
 */
import type { TensorInfo } from '@tensorflow/tfjs-core';
import { assert } from '../../../../core/errors.js';
import { kernelIdOf } from '../kernel-id.js';
import type { NativeBackend } from '../native-backend.js';
import { registerNative, type NativeKernelCall } from '../register-kernel.js';
import { FUSED, type LossTileAttrs, type LossTileGradAttrs } from './fused-names.js';

const FLOAT_BYTES = 4;

/** Shape of the logits [n, R], and the length of the sequences in labels [B, T]. */
function sizesOf(
  logits: TensorInfo,
  labels: TensorInfo,
  firstToken: number,
): { rows: number; width: number; length: number } {
  const [rows, width] = logits.shape as [number, number];
  const [batch, length] = labels.shape as [number, number];
  assert(
    labels.dtype === 'int32' && firstToken + rows <= batch * length,
    'labels are int32 [B, T], one per token',
  );
  return { rows, width, length };
}

/** Offset of the chunk's part of a tensor [N]. */
function partOf(backend: NativeBackend, tensor: TensorInfo, firstToken: number): number {
  return backend.offsetOf(tensor) + FLOAT_BYTES * firstToken;
}

/**
 * {logits [n, R] of tokens `firstToken …`, largest, total, target [N] each, labels [B, T]} → the
 * three after this tile, [n] each
 */
function lossTile({ inputs, attrs, backend }: NativeKernelCall): TensorInfo[] {
  const { firstToken, firstRow } = attrs as unknown as LossTileAttrs;
  const { logits, labels } = inputs;
  const { rows, width, length } = sizesOf(logits!, labels!, firstToken);
  const states = ['largest', 'total', 'target'].map((name) => inputs[name]!);
  const results = states.map(() => backend.makeOutput([rows], 'float32'));
  backend.launch(kernelIdOf('lossTile'), [
    backend.offsetOf(logits!),
    ...states.map((state) => partOf(backend, state, firstToken)),
    ...results.map((result) => backend.offsetOf(result)),
    rows,
    width,
    firstRow,
    backend.offsetOf(labels!),
    firstToken,
    length,
  ]);
  return results;
}

/**
 * {logits [n, R] of tokens `firstToken …`, lse [N], labels [B, T]} → their gradient, in the memory of
 * the logits, which nothing else may read any more
 */
function lossTileGrad({ inputs, attrs, backend }: NativeKernelCall): TensorInfo {
  const { firstToken, firstRow, scale } = attrs as unknown as LossTileGradAttrs;
  const { logits, lse, labels } = inputs;
  const { rows, width, length } = sizesOf(logits!, labels!, firstToken);
  const gradient = backend.alias(logits!, logits!.shape);
  backend.launch(kernelIdOf('lossTileGrad'), [
    backend.offsetOf(logits!),
    partOf(backend, lse!, firstToken),
    rows,
    width,
    firstRow,
    backend.offsetOf(labels!),
    firstToken,
    length,
    scale,
  ]);
  return gradient;
}

export function registerFusedLoss(): void {
  registerNative(FUSED.lossTile, lossTile);
  registerNative(FUSED.lossTileGrad, lossTileGrad);
}

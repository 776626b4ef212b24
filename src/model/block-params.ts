/**
 * @file Small helpers of the built-in blocks: parameter specs, look-up of tensors and fields.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert, SpillwayError } from '../../core/errors.js';
import type { BlockAux, HostTensor, ParamInit, ParamName, ParamSpec, Params } from './block.js';

/** A matrix filled with normal(0, std); weight decay applies. */
export function matrixSpec(name: ParamName, shape: readonly number[], std: number): ParamSpec {
  return { name, shape, init: { kind: 'normal', std }, decay: true };
}

/** A norm's weight or a bias; weight decay does not apply. */
export function vectorSpec(name: ParamName, length: number, kind: 'zeros' | 'ones'): ParamSpec {
  const init: ParamInit = { kind };
  return { name, shape: [length], init, decay: false };
}

/** The tensor of `name`, which the engine has loaded because the block uses it. */
export function tensorOf(params: Params, name: ParamName): Tensor {
  const tensor = params[name];
  assert(tensor !== undefined, 'a parameter that the block uses was not loaded', { name });
  return tensor;
}

/**
 * A field of the batch.
 *
 * @throws DATA_INVALID when the batch lacks it
 */
export function fieldOf(fields: BlockAux['fields'], name: string): HostTensor {
  const field = fields[name];
  if (field === undefined) {
    throw new SpillwayError(
      'DATA_INVALID',
      `the batch has no field ${name}; make it with languageModelBatch`,
      { fields: Object.keys(fields) },
    );
  }
  return field;
}

/** Shape [B, T] of the batch's tokens. */
export function tokenShape(fields: BlockAux['fields']): readonly [number, number] {
  const { shape } = fieldOf(fields, 'input_ids');
  assert(shape.length === 2, 'input_ids are [B, T]', { rank: shape.length });
  return [shape[0]!, shape[1]!];
}

/**
 * The place of each token in its document, [B·T], where the batch has `position_ids`.
 *
 * @throws DATA_INVALID for a place that is not 0 … T-1
 */
export function positionsOf(fields: BlockAux['fields']): Int32Array | undefined {
  const field = fields['position_ids'];
  if (field === undefined) return undefined;
  const [batchSize, length] = tokenShape(fields);
  const data = Int32Array.from(field.data);
  const wrong = data.findIndex((position) => position < 0 || position >= length);
  if (wrong >= 0 || data.length !== batchSize * length) {
    throw new SpillwayError(
      'DATA_INVALID',
      'position_ids must hold a place in 0 … length-1 for every token; restart them at each document',
      { batchSize, length, count: data.length, ...(wrong >= 0 && { position: data[wrong] }) },
    );
  }
  return data;
}

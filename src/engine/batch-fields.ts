/**
 * @file Puts the batch fields that a block reads on the device, for as long as it runs.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../core/errors.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import type { Block, BlockAux } from '../model/block.js';

/**
 * Runs `body` with `aux.tensors` holding the fields that `block` reads, and frees them after.
 *
 * @throws DATA_INVALID when the micro-batch lacks a field
 */
export async function withFields<T>(
  tiers: TierManager,
  block: Block,
  aux: BlockAux,
  body: (ready: BlockAux) => Promise<T>,
): Promise<T> {
  const tensors: Record<string, Tensor> = {};
  const optional = (block.readsIfPresent ?? []).filter((name) => aux.fields[name] !== undefined);
  try {
    for (const name of [...(block.reads ?? []), ...optional]) {
      const field = aux.fields[name];
      if (field === undefined) {
        throw new SpillwayError(
          'DATA_INVALID',
          `block ${block.name} reads the field ${name}, which the micro-batch lacks`,
          { fields: Object.keys(aux.fields) },
        );
      }
      tensors[name] = await tiers.device.upload(field.data, field.shape, name);
      tiers.countUpload(field.data.byteLength);
    }
    return await body({ ...aux, tensors });
  } finally {
    for (const tensor of Object.values(tensors)) tensor.dispose();
  }
}

/**
 * @file Batch fields that blocks read, on the device since their first use.
 *
 * Owns their tensors until `clear`.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../core/errors.js';
import type { Device } from '../../tiers/device/device.js';
import type { Block, BlockAux } from '../model/block.js';

export class BatchFields {
  readonly #device: Pick<Device, 'upload'>;
  readonly #countUpload: (bytes: number) => void;
  /** By `microBatch/name`. */
  readonly #tensors = new Map<string, Tensor>();

  constructor(device: Pick<Device, 'upload'>, countUpload: (bytes: number) => void) {
    this.#device = device;
    this.#countUpload = countUpload;
  }

  /** Whether all that `block` reads of a micro-batch is on the device already. */
  has(block: Block, aux: BlockAux, microBatch: number): boolean {
    return fieldNames(block, aux).every(
      (name) => aux.fields[name] === undefined || this.#tensors.has(`${microBatch}/${name}`),
    );
  }

  /**
   * The fields that `block` reads of a micro-batch; they stay here.
   *
   * @throws DATA_INVALID when the micro-batch lacks one
   */
  async of(block: Block, aux: BlockAux, microBatch: number): Promise<Record<string, Tensor>> {
    const tensors: Record<string, Tensor> = {};
    for (const name of fieldNames(block, aux)) {
      const key = `${microBatch}/${name}`;
      const tensor = this.#tensors.get(key) ?? (await this.#upload(name, block, aux));
      this.#tensors.set(key, tensor);
      tensors[name] = tensor;
    }
    return tensors;
  }

  /** Frees them. */
  clear(): void {
    for (const tensor of this.#tensors.values()) tensor.dispose();
    this.#tensors.clear();
  }

  async #upload(name: string, block: Block, aux: BlockAux): Promise<Tensor> {
    const field = aux.fields[name];
    if (field === undefined) {
      throw new SpillwayError(
        'DATA_INVALID',
        `block ${block.name} reads the field ${name}, which the micro-batch lacks`,
        { fields: Object.keys(aux.fields), block: aux.block },
      );
    }
    const tensor = await this.#device.upload(field.data, field.shape, name);
    this.#countUpload(field.data.byteLength);
    return tensor;
  }
}

/** Names of what a block reads: what it needs, and what it takes where a micro-batch has it. */
function fieldNames(block: Block, { fields }: BlockAux): string[] {
  const optional = (block.readsIfPresent ?? []).filter((name) => fields[name] !== undefined);
  return [...(block.reads ?? []), ...optional];
}

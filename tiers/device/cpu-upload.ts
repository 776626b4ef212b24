/**
 * @file A tensor of the cpu device under construction.
 *
 * The array is allocated and charged once, at its final size, when the upload begins; pieces are
 * decoded in place, and `finish` hands that array to tfjs without another copy.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { ElementType } from '../../core/types.js';
import type { DataAccount } from './data-account.js';
import { decodeElements } from './decode-elements.js';
import type { TensorUpload } from './device.js';
import { WrittenRanges } from './written-ranges.js';

/** What an upload needs from its device. */
export interface UploadContext {
  readonly account: DataAccount;
  /** A tensor over `values`, which then belong to tfjs. */
  makeTensor(values: Float32Array): Tensor;
  countUploaded(bytes: number): void;
}

export class CpuUpload implements TensorUpload {
  readonly #context: UploadContext;
  readonly #written = new WrittenRanges();
  /** Undefined once finished or aborted. */
  #values: Float32Array | undefined;

  /** @throws DEVICE_OUT_OF_MEMORY; nothing changes then */
  constructor(context: UploadContext, length: number, label: string) {
    this.#context = context;
    this.#values = new Float32Array(context.account.allocate(length * 4, label));
  }

  async write(offset: number, source: Uint8Array, type: ElementType): Promise<void> {
    const values = this.#open();
    const length = decodeElements(values, offset, source, type);
    assert(this.#written.add(offset, offset + length), 'each element is written once', {
      offset,
      length,
    });
    this.#context.countUploaded(source.byteLength);
  }

  finish(): Tensor {
    const values = this.#open();
    assert(this.#written.covers(values.length), 'every element of the tensor has been written');
    const tensor = this.#context.makeTensor(values);
    this.#close(values);
    return tensor;
  }

  abort(): void {
    if (this.#values !== undefined) this.#close(this.#values);
  }

  #open(): Float32Array {
    assert(this.#values !== undefined, 'the upload is neither finished nor aborted');
    return this.#values;
  }

  #close(values: Float32Array): void {
    this.#context.account.drop(values.buffer);
    this.#values = undefined;
  }
}

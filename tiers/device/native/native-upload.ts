/**
 * @file A tensor of the native device under construction: pieces are decoded by the upload queue,
 * straight into the tensor's memory.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert, SpillwayError } from '../../../core/errors.js';
import { elementBytes, type ElementType } from '../../../core/types.js';
import type { TensorUpload } from '../device.js';
import { WrittenRanges } from '../written-ranges.js';
import { SOURCE, UPLOAD } from './command-queues.js';
import type { TensorArena, TensorStorage } from './tensor-arena.js';

/** What an upload needs from its device. */
export interface NativeUploadContext {
  readonly arena: TensorArena;
  /** How the elements are stored; bfloat16 takes pieces of bfloat16 only. */
  readonly kept: 'float32' | 'bfloat16';
  /** A tensor over `storage`, which belongs to it from then on. */
  makeTensor(storage: TensorStorage): Tensor;
  countUploaded(bytes: number): void;
}

export class NativeUpload implements TensorUpload {
  readonly #context: NativeUploadContext;
  readonly #written = new WrittenRanges();
  readonly #length: number;
  readonly #elementBytes: number;
  /** Undefined once finished or aborted. */
  #storage: TensorStorage | undefined;

  /** @throws DEVICE_OUT_OF_MEMORY; nothing changes then */
  constructor(context: NativeUploadContext, length: number, label: string) {
    this.#context = context;
    this.#length = length;
    this.#elementBytes = elementBytes(context.kept);
    this.#storage = context.arena.allocate(length * this.#elementBytes, UPLOAD, label);
  }

  async write(offset: number, source: Uint8Array, type: ElementType): Promise<void> {
    const storage = this.#open();
    const kind = sourceKind(type, this.#context.kept);
    const length = source.byteLength / elementBytes(type);
    assert(
      Number.isInteger(length) && offset >= 0 && offset + length <= this.#length,
      'the elements lie inside the tensor',
      { offset, sourceBytes: source.byteLength, tensorLength: this.#length },
    );
    assert(this.#written.add(offset, offset + length), 'each element is written once', {
      offset,
      length,
    });
    this.#context.countUploaded(source.byteLength);
    if (length === 0) return;
    const { queues } = this.#context.arena;
    const target = storage.address + offset * this.#elementBytes;
    const done = queues.upload(target, alignedSource(source, kind), kind);
    storage.uploadSequence = queues.submitted(UPLOAD);
    await done;
  }

  finish(): Tensor {
    const storage = this.#open();
    assert(this.#written.covers(this.#length), 'every element of the tensor has been written');
    this.#storage = undefined;
    return this.#context.makeTensor(storage);
  }

  abort(): void {
    if (this.#storage === undefined) return;
    this.#context.arena.release(this.#storage);
    this.#storage = undefined;
  }

  #open(): TensorStorage {
    assert(this.#storage !== undefined, 'the upload is neither finished nor aborted');
    return this.#storage;
  }
}

/** `source`, or a copy of it where 16-bit elements begin at an odd byte. */
export function alignedSource(source: Uint8Array, kind: 0 | 1 | 2): Uint8Array {
  return kind === SOURCE.bytes || source.byteOffset % 2 === 0 ? source : source.slice();
}

/** How the upload queue turns elements of `type` into those that are kept. */
export function sourceKind(type: ElementType, kept: 'float32' | 'bfloat16'): 0 | 1 | 2 {
  if (kept === 'bfloat16') {
    assert(type === 'bfloat16', 'what is kept as bfloat16 arrives as bfloat16', { type });
    return SOURCE.bytes;
  }
  switch (type) {
    case 'float32':
      return SOURCE.bytes;
    case 'bfloat16':
      return SOURCE.bfloat16;
    case 'float16':
      return SOURCE.float16;
    case 'int32':
    case 'uint16':
      throw new SpillwayError('INTERNAL', `elements of type ${type} are no tensor of float32`);
  }
}

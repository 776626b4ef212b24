/**
 * @file Queues that run nothing: the other half of the `meta` device.
 *
 * Kernels choose shapes, allocate and launch as on the native device, through the same code; here a
 * launch is only counted, has run at once, and memory is address space without bytes. So a block's
 * run costs no arithmetic, and its allocations are those of the native device, exactly.
 *
 * Owns nothing.
 */
import { SpillwayError } from '../../../core/errors.js';
import { HUGE_PAGE_BYTES } from '../../host/slab.js';
import { COMPUTE, DOWNLOAD, QUEUES, UPLOAD } from './command-queues.js';
import type { DeviceQueues, QueueId } from './command-queues.js';

export class MetaQueues implements DeviceQueues {
  /** Any but 0, which stands for no memory; aligned as the native arena's. */
  readonly baseAddress = HUGE_PAGE_BYTES;
  readonly isMeta = true;
  readonly #submitted = QUEUES.map(() => 0);
  #closed = false;

  get isClosed(): boolean {
    return this.#closed;
  }

  submitted(queue: QueueId): number {
    return this.#submitted[queue]!;
  }

  completed(queue: QueueId): number {
    return this.#submitted[queue]!;
  }

  launch(): void {
    this.#count(COMPUTE);
  }

  /** Everything has run: nothing waits. */
  wait(): void {}

  write(): void {
    this.#count(COMPUTE);
  }

  upload(): Promise<void> {
    this.#count(UPLOAD);
    return Promise.resolve();
  }

  /** @throws BLOCK_INVALID always: there are no values */
  download(): Promise<void> {
    this.#count(DOWNLOAD);
    return Promise.reject(noValues());
  }

  discard(): void {
    this.#count(COMPUTE);
  }

  done(): Promise<void> {
    return Promise.resolve();
  }

  drain(): Promise<void> {
    return Promise.resolve();
  }

  block(): void {}

  /** @throws BLOCK_INVALID always: there are no values */
  read(): void {
    throw noValues();
  }

  close(): Promise<void> {
    this.#closed = true;
    return Promise.resolve();
  }

  closeNow(): void {
    this.#closed = true;
  }

  #count(queue: QueueId): void {
    this.#submitted[queue]! += 1;
  }
}

function noValues(): SpillwayError {
  return new SpillwayError(
    'BLOCK_INVALID',
    'a function of the model reads the values of a tensor; memory is planned from shapes alone, so compute with tensors only',
  );
}

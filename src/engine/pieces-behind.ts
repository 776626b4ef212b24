/**
 * @file Memory of two pieces of state: one is filled while the other is still being written.
 *
 * Pieces are one chunk of all states of a shard. Owns their memory.
 */
import { settleAll } from '../../core/settle-all.js';
import { CHUNK_ELEMENTS } from '../../core/types.js';

/** Memory of one piece, and the writes that read from it. */
export class PieceBuffers {
  readonly master = new Float32Array(CHUNK_ELEMENTS);
  readonly param = new Uint16Array(CHUNK_ELEMENTS);
  readonly masterLow = new Uint16Array(CHUNK_ELEMENTS);
  #moments: Readonly<Record<'exp_avg' | 'exp_avg_sq', Float32Array>> | undefined;
  #written: Promise<void> = Promise.resolve();

  /** Only a run that goes on has them. */
  get moments(): Readonly<Record<'exp_avg' | 'exp_avg_sq', Float32Array>> {
    this.#moments ??= {
      exp_avg: new Float32Array(CHUNK_ELEMENTS),
      exp_avg_sq: new Float32Array(CHUNK_ELEMENTS),
    };
    return this.#moments;
  }

  /** Lets `writes` end; whoever takes the buffers next waits for them and sees their error. */
  release(writes: readonly Promise<void>[]): void {
    this.#written = settleAll(writes);
    this.#written.catch(() => undefined);
  }

  /** Waits for the writes. @throws what they threw */
  async written(): Promise<void> {
    await this.#written;
  }
}

export class PiecesBehind {
  readonly #both = [new PieceBuffers(), new PieceBuffers()] as const;
  #turn: 0 | 1 = 0;

  /** Runs `body`, which takes pieces. @throws what it throws, or a write; nothing is in flight then */
  async use(body: () => Promise<void>): Promise<void> {
    const writes = () => this.#both.map((buffers) => buffers.written());
    try {
      await body();
      await settleAll(writes());
    } finally {
      await Promise.allSettled(writes());
    }
  }

  /** Buffers that nothing reads from. @throws what writing from them threw */
  async next(): Promise<PieceBuffers> {
    const buffers = this.#both[this.#turn];
    this.#turn = this.#turn === 0 ? 1 : 0;
    await buffers.written();
    return buffers;
  }
}

/**
 * @file Data files → an arena of rows, tokenised by threads, in file order.
 *
 * What comes out does not depend on the number of threads or their timing. Little text is encoded
 * on the calling thread, in less time than threads need to start.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ContentHash } from './content-hash.js';
import type { DataFile } from './data-files.js';
import { BatchEncoder } from './encode-batch.js';
import type { BatchEncoderOptions, EncodedBatch } from './encode-batch.js';
import { lineBatches } from './line-batches.js';
import type { LineBatch } from './line-batches.js';
import { runInOrder } from './run-in-order.js';
import { TokenArena } from './token-arena.js';
import { TokenizePool } from './tokenize-pool.js';

/** Less text than this is encoded here: a thread takes about half a second to start. */
export const INLINE_BYTES = 2 ** 20;

/**
 * Characters per batch for a thread: a few tenths of a second of tokenising, against which a message
 * between threads (about 0.1 ms) is nothing.
 */
const THREAD_BATCH = 2 ** 18;

/** Characters per batch on the calling thread, whose event loop waits for as long: some 30 ms. */
const INLINE_BATCH = 2 ** 14;

/** Text per thread that makes starting it worthwhile. */
const BYTES_PER_WORKER = 2 ** 19;

/** What `tokenizeFiles` needs. */
export interface TokenizeOptions {
  readonly files: readonly DataFile[];
  readonly encoder: BatchEncoderOptions;
  /** Most threads. */
  readonly workers: number;
  /** Called after each batch with what is done by then. */
  readonly onBatch?: ((rows: number, bytesDone: number) => void) | undefined;
  /** Rejects with the signal's reason; threads are ended. */
  readonly signal?: AbortSignal | undefined;
  /** Replaces `INLINE_BYTES` (tests). */
  readonly inlineBytes?: number | undefined;
  /** Another worker module (tests). */
  readonly workerFile?: string | undefined;
}

/** The rows of files. */
export interface TokenizedFiles {
  readonly arena: TokenArena;
  /** Lines that are not blank. */
  readonly lineCount: number;
  readonly truncatedCount: number;
  readonly skippedCount: number;
  /** Warnings, each once. */
  readonly notes: readonly string[];
}

/** How batches become rows. */
interface Encoder {
  /** Batches under way at most. */
  readonly depth: number;
  readonly batchCharacters: number;
  encode(lines: LineBatch['lines']): Promise<EncodedBatch>;
  close(): Promise<void>;
}

/**
 * Tokenises all lines of `files`.
 *
 * @returns the rows, and the hash of the contents that were read (as `hashFiles` gives it)
 * @throws DATA_NOT_FOUND, DATA_INVALID, TOKENIZER_INVALID, TOKEN_OUT_OF_RANGE, IO_ERROR: the first
 *   in file order; WORKER_FAILED
 */
export async function tokenizeFiles(
  options: TokenizeOptions,
): Promise<TokenizedFiles & { readonly contentHash: string }> {
  const { files, signal } = options;
  signal?.throwIfAborted();
  const hash = new ContentHash();
  const rows = new RowCollector();
  const encoder = encoderFor(options);
  const onAbort = (): void => void encoder.close();
  signal?.addEventListener('abort', onAbort);
  try {
    await runInOrder(
      lineBatches(files, encoder.batchCharacters, hash, signal),
      encoder.depth,
      async (batch) => ({ batch, encoded: await encoder.encode(batch.lines) }),
      ({ batch, encoded }) => {
        signal?.throwIfAborted();
        rows.add(batch, encoded);
        options.onBatch?.(rows.lineCount, batch.bytesRead);
      },
    );
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  } finally {
    signal?.removeEventListener('abort', onAbort);
    await encoder.close();
  }
  return { ...rows.finish(), contentHash: hash.digest() };
}

/** Threads, or the calling one for little text. A pipe's size is unknown: threads. */
function encoderFor(options: TokenizeOptions): Encoder {
  const { files, encoder: encoderOptions, inlineBytes = INLINE_BYTES } = options;
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  const known = files.every((file) => file.regular);
  if (known && bytes < inlineBytes) {
    const encoder = new BatchEncoder(encoderOptions);
    return {
      depth: 1,
      batchCharacters: INLINE_BATCH,
      encode: async (lines) => {
        // Between batches timers and signals get their turn.
        await nextTurn();
        return encoder.encode(lines);
      },
      close: () => Promise.resolve(),
    };
  }
  const useful = known ? Math.max(1, Math.ceil(bytes / BYTES_PER_WORKER)) : options.workers;
  const workers = Math.min(options.workers, useful);
  const pool = new TokenizePool(workers, encoderOptions, options.workerFile);
  return {
    depth: pool.depth,
    batchCharacters: THREAD_BATCH,
    encode: (lines) => pool.encode(lines),
    close: () => pool.close(),
  };
}

/** Puts encoded batches one after the other. */
class RowCollector {
  lineCount = 0;
  readonly #arena = new TokenArena();
  readonly #notes = new Set<string>();
  #truncatedCount = 0;
  #skippedCount = 0;

  add(batch: LineBatch, encoded: EncodedBatch): void {
    const { lengths, tokens } = encoded;
    let at = 0;
    for (const signed of lengths) {
      const length = Math.abs(signed);
      const ids = tokens.subarray(at, at + length);
      at += length;
      if (signed > 0) {
        this.#arena.append(ids, undefined);
        continue;
      }
      this.#arena.append(ids, tokens.subarray(at, at + length));
      at += length;
    }
    this.lineCount += batch.lines.length;
    this.#truncatedCount += encoded.truncatedCount;
    this.#skippedCount += encoded.skippedCount;
    for (const note of encoded.notes) this.#notes.add(note);
  }

  finish(): TokenizedFiles {
    return {
      arena: this.#arena,
      lineCount: this.lineCount,
      truncatedCount: this.#truncatedCount,
      skippedCount: this.#skippedCount,
      notes: [...this.#notes],
    };
  }
}

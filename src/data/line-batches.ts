/**
 * @file The lines of several files in batches: the unit of work of a tokenising thread.
 */
import type { ContentHash } from './content-hash.js';
import type { DataFile } from './data-files.js';
import { readJsonl } from './read-jsonl.js';
import type { JsonlLine } from './read-jsonl.js';

/** Lines per batch, so that a batch of short lines stays small in objects. */
const BATCH_LINES = 4096;

/** Lines in file order; a batch may span files. */
export interface LineBatch {
  readonly lines: readonly JsonlLine[];
  /** Bytes of all files read when the batch was complete, the batch's included. */
  readonly bytesRead: number;
}

/**
 * Yields all lines; at the end `hash` has seen the contents. The last batch may have no lines.
 *
 * @param batchCharacters a batch is complete with the line that reaches this number
 * @throws what `readJsonl` throws, after the batches before
 */
export async function* lineBatches(
  files: readonly DataFile[],
  batchCharacters: number,
  hash: ContentHash,
  signal: AbortSignal | undefined,
): AsyncGenerator<LineBatch, void, undefined> {
  let bytesRead = 0;
  let lines: JsonlLine[] = [];
  let characters = 0;
  const onBytes = (bytes: Uint8Array): void => {
    bytesRead += bytes.length;
    hash.update(bytes);
  };
  const takeBatch = (): LineBatch => {
    const batch = { lines, bytesRead };
    lines = [];
    characters = 0;
    return batch;
  };
  for (const { path } of files) {
    try {
      for await (const line of readJsonl(path, { onBytes, signal })) {
        lines.push(line);
        characters += line.text.length;
        if (characters >= batchCharacters || lines.length >= BATCH_LINES) yield takeBatch();
      }
    } catch (error) {
      // A bad line before the end of the file comes first.
      if (lines.length > 0) yield takeBatch();
      throw error;
    }
    hash.endFile();
  }
  yield takeBatch();
}

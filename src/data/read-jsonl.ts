/**
 * @file The lines of a JSONL file, streamed: memory does not grow with the file.
 *
 * Accepts a byte-order mark, CRLF, blank lines and a missing final newline. A line is at most
 * `MAX_LINE_BYTES` long.
 */
import { errnoOf } from '../../core/errno.js';
import { SpillwayError } from '../../core/errors.js';
import { openBytes } from './open-bytes.js';

/** Longest line. A row is truncated to `max_length` tokens anyway; this is 16 million words. */
export const MAX_LINE_BYTES = 64 * 2 ** 20;

/** One line that is not blank. */
export interface JsonlLine {
  /** `path:line`, one-based, for messages. */
  readonly place: string;
  readonly text: string;
}

/** How a file is read. */
export interface ReadOptions {
  /** Longest line; `MAX_LINE_BYTES` by default. */
  readonly maxLineBytes?: number;
  /** Called with each piece of the file, in order, before its lines come; a view to be read at once. */
  readonly onBytes?: (bytes: Uint8Array) => void;
  /** Ends reading with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

const NEWLINE = 0x0a;
const BYTE_ORDER_MARK = '\uFEFF';

/**
 * Yields the lines of `path` in order.
 *
 * @throws DATA_NOT_FOUND when it cannot be opened; DATA_INVALID when a line is too long or not
 *   UTF-8; IO_ERROR when reading fails; the signal's reason
 */
export async function* readJsonl(
  path: string,
  options: ReadOptions = {},
): AsyncGenerator<JsonlLine, void, undefined> {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  let lineNumber = 0;
  for await (const bytes of readLines(path, options)) {
    lineNumber += 1;
    const place = `${path}:${lineNumber}`;
    let text: string;
    try {
      text = decoder.decode(bytes);
    } catch (error) {
      throw new SpillwayError('DATA_INVALID', `${place} is not UTF-8; convert the file`, {}, error);
    }
    if (lineNumber === 1 && text.startsWith(BYTE_ORDER_MARK)) text = text.slice(1);
    text = text.trim();
    if (text !== '') yield { place, text };
  }
}

/** Bytes between newlines; a view that is valid until the next one is asked for. */
async function* readLines(
  path: string,
  options: ReadOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  const { maxLineBytes = MAX_LINE_BYTES, onBytes } = options;
  let pending: Uint8Array[] = [];
  let pendingBytes = 0;
  let lineNumber = 1;
  const takeLine = (end: Uint8Array): Uint8Array => {
    const line = pendingBytes === 0 ? end : Buffer.concat([...pending, end]);
    pending = [];
    pendingBytes = 0;
    lineNumber += 1;
    return line;
  };
  for await (const chunk of readChunks(path, options.signal)) {
    onBytes?.(chunk);
    let start = 0;
    for (;;) {
      const newline = chunk.indexOf(NEWLINE, start);
      const end = chunk.subarray(start, newline < 0 ? chunk.length : newline);
      if (pendingBytes + end.length > maxLineBytes) {
        throw new SpillwayError(
          'DATA_INVALID',
          `${path}:${lineNumber} is longer than a row may be; split it into several rows`,
          { maxLineBytes },
        );
      }
      if (newline < 0) {
        if (end.length > 0) pending.push(end);
        pendingBytes += end.length;
        break;
      }
      yield takeLine(end);
      start = newline + 1;
    }
  }
  if (pendingBytes > 0) yield takeLine(new Uint8Array(0));
}

async function* readChunks(
  path: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<Buffer, void, undefined> {
  try {
    yield* openBytes(path, signal) as AsyncIterable<Buffer>;
  } catch (error) {
    signal?.throwIfAborted();
    const errno = errnoOf(error);
    if (errno === 'EIO') {
      throw new SpillwayError(
        'IO_ERROR',
        `reading ${path} failed; check the disk`,
        { errno },
        error,
      );
    }
    throw new SpillwayError(
      'DATA_NOT_FOUND',
      `cannot read the data file "${path}"; check data_files`,
      { errno },
      error,
    );
  }
}

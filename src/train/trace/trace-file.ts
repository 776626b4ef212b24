/**
 * @file A trace file as it grows: the JSON object format, one event per line.
 *
 * Events come from callbacks that cannot wait, so that a full buffer is written at once: memory is
 * bounded by the buffer whatever the length of the trace. Owns the descriptor.
 */
import { accessSync, closeSync, constants, openSync, statSync, writeSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { errnoOf, writeError } from '../../checkpoint/file-errors.js';
import type { TraceEvent } from './trace-event.js';

/** Characters that are gathered; some 250 events, so that writing is a fraction of their cost. */
const BUFFER_LENGTH = 65_536;

/**
 * Makes sure, without writing anything, that a trace can be written.
 *
 * @param outputDir folder that the run will make
 * @throws PATH_UNWRITABLE, IO_ERROR
 */
export function checkTracePath(path: string, outputDir: string): void {
  try {
    if (isThere(path)) {
      // A folder refuses to be opened for writing, whatever its permissions.
      if (statSync(path).isDirectory()) throw Object.assign(new Error(path), { code: 'EISDIR' });
      accessSync(path, constants.W_OK);
      return;
    }
    const folder = dirname(resolve(path));
    if (folder === resolve(outputDir) && !isThere(folder)) return;
    // The trailing dot fails where the folder is a file.
    accessSync(`${folder}/.`, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw writeError(path, error);
  }
}

function isThere(path: string): boolean {
  try {
    statSync(path);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}

export class TraceFile {
  readonly #path: string;
  #descriptor: number | undefined;
  #text = '';
  #begun = false;
  #isFirst = true;

  /** Empties or makes the file. @throws PATH_UNWRITABLE, OUTPUT_FULL, IO_ERROR */
  constructor(path: string) {
    this.#path = path;
    try {
      this.#descriptor = openSync(path, 'w');
    } catch (error) {
      throw writeError(path, error);
    }
  }

  /** Begins the trace. @param facts about all of it. @throws OUTPUT_FULL, IO_ERROR */
  begin(facts: object): void {
    this.#begun = true;
    this.#add(`{"displayTimeUnit":"ms","otherData":${JSON.stringify(facts)},"traceEvents":[\n`);
  }

  /** @throws OUTPUT_FULL, IO_ERROR */
  write(event: TraceEvent): void {
    this.#add(`${this.#isFirst ? '' : ',\n'}${JSON.stringify(event)}`);
    this.#isFirst = false;
  }

  /**
   * Completes the trace; one that has not begun stays empty. Idempotent.
   *
   * @throws OUTPUT_FULL, IO_ERROR; the file is closed then
   */
  end(): void {
    if (this.#descriptor === undefined) return;
    try {
      if (this.#begun) this.#text += '\n]}\n';
      this.#flush();
    } finally {
      this.abandon();
    }
  }

  /** Leaves the file as it is. Idempotent. */
  abandon(): void {
    const descriptor = this.#descriptor;
    this.#descriptor = undefined;
    if (descriptor !== undefined) closeSync(descriptor);
  }

  #add(text: string): void {
    this.#text += text;
    if (this.#text.length >= BUFFER_LENGTH) this.#flush();
  }

  #flush(): void {
    if (this.#descriptor === undefined) return;
    const bytes = Buffer.from(this.#text);
    this.#text = '';
    try {
      for (let done = 0; done < bytes.length;) {
        done += writeSync(this.#descriptor, bytes, done);
      }
    } catch (error) {
      throw writeError(this.#path, error);
    }
  }
}

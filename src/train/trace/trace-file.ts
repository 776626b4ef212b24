/**
 * @file A trace file as it grows: the JSON object format, one event per line.
 *
 * Events come from callbacks that cannot wait, so that a full buffer is written at once: memory is
 * bounded by the buffer whatever the length of the trace. Each write ends with the end of the
 * document, which the next one overwrites, so that what a killed run leaves is complete JSON:
 * Perfetto refuses anything else. Owns the descriptor.
 */
import {
  accessSync,
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  openSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname, resolve } from 'node:path';
import { errnoOf } from '../../../core/errno.js';
import { writeError } from '../../checkpoint/file-errors.js';
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

/** Ends the document. */
const END = '\n]}\n';

export class TraceFile {
  readonly #path: string;
  #descriptor: number | undefined;
  /** Where the next write goes; undefined where bytes cannot be overwritten, as in a pipe. */
  #position: number | undefined;
  #text = '';
  #begun = false;
  #isFirst = true;
  #byteLength = 0;

  /** Empties or makes the file. @throws PATH_UNWRITABLE, OUTPUT_FULL, IO_ERROR */
  constructor(path: string) {
    this.#path = path;
    try {
      this.#descriptor = openSync(path, 'w');
      if (fstatSync(this.#descriptor).isFile()) this.#position = 0;
    } catch (error) {
      throw writeError(path, error);
    }
  }

  /** Bytes of the trace, those in the buffer included. */
  get byteLength(): number {
    return this.#byteLength;
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

  /** Writes what is in the buffer. @throws OUTPUT_FULL, IO_ERROR */
  flush(): void {
    if (this.#text !== '') this.#flush(false);
  }

  /**
   * Completes the trace; one that has not begun stays empty. Idempotent.
   *
   * @throws OUTPUT_FULL, IO_ERROR; the file is closed then
   */
  end(): void {
    if (this.#descriptor === undefined) return;
    try {
      if (this.#begun) this.#flush(true);
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
    // Names are not ASCII alone, but nearly: a bound needs no more.
    this.#byteLength += text.length;
    if (this.#text.length >= BUFFER_LENGTH) this.#flush(false);
  }

  #flush(isLast: boolean): void {
    if (this.#descriptor === undefined) return;
    const added = Buffer.from(this.#text);
    const isEnded = isLast || this.#position !== undefined;
    const bytes = isEnded ? Buffer.concat([added, Buffer.from(END)]) : added;
    this.#text = '';
    try {
      for (let done = 0; done < bytes.length;) {
        const at = this.#position === undefined ? null : this.#position + done;
        done += writeSync(this.#descriptor, bytes, done, bytes.length - done, at);
      }
    } catch (error) {
      this.#restoreEnd();
      throw writeError(this.#path, error);
    }
    if (this.#position !== undefined) this.#position += added.length;
  }

  /** What was written before is a whole document again; a full disk has room for bytes it holds. */
  #restoreEnd(): void {
    const [descriptor, position] = [this.#descriptor, this.#position];
    if (descriptor === undefined || position === undefined || position === 0) return;
    try {
      writeSync(descriptor, END, position);
      ftruncateSync(descriptor, position + END.length);
    } catch {
      // The error that is thrown says what happened.
    }
  }
}

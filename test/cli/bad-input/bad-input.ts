/**
 * @file A command line that must be refused, and the folder of good and bad files that it names.
 */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ErrorCode } from '../../../core/errors.js';
import { TINY_MODEL, trainArguments, type Flags } from '../end-to-end.js';

/** One row of the table. */
export interface BadInput {
  /** Completes "is refused: …". */
  readonly name: string;
  readonly code: ErrorCode;
  /** What the one line must say, besides the code. */
  readonly says: RegExp;
  /** The command line; makes the files that it needs. */
  readonly args: (box: Box) => string[];
}

/** Key by key what changes in a good training command; undefined takes the key away. */
export type FlagChanges = Readonly<Record<string, string | number | undefined>>;

const fixtures = fileURLToPath(new URL('../../../fixtures', import.meta.url));
/** Llama with 131 tokens, grouped heads and 40 positions. */
export const LLAMA = join(fixtures, 'llama-tiny');
/** A tokenizer that knows no chat template. */
const TOKENIZER = join(fixtures, 'tokenizers/bpe-tiny');

export const ROWS: readonly object[] = Array.from({ length: 6 }, (_, row) => ({
  input_ids: Array.from({ length: 6 + row }, (__, i) => 3 + ((row + i) % 7) * 11),
}));

/** A temporary folder with a model, data, and what a row of the table adds. */
export class Box {
  readonly folder = mkdtempSync(join(tmpdir(), 'spillway-bad-input-'));
  #madeCount = 0;

  /** A training command that works, changed. Its last output lies in `earlier`. */
  train(changes: FlagChanges = {}, ...more: readonly string[]): string[] {
    const all = { ...this.#goodFlags(), ...changes };
    const kept = Object.entries(all).filter((entry) => entry[1] !== undefined);
    return [...trainArguments(Object.fromEntries(kept) as Flags), ...more];
  }

  #goodFlags(): Flags {
    return {
      model_name_or_path: TINY_MODEL,
      data_files: this.path('rows.jsonl'),
      output_dir: this.earlier,
      device_memory: '8MiB',
      host_memory: '16MiB',
      max_steps: 2,
      save_steps: 1,
    };
  }

  /** The output folder of an earlier run, which nothing bad may harm. */
  get earlier(): string {
    return this.path('earlier');
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  /** A new file of `text` or bytes. */
  file(text: string | Uint8Array, name = 'file'): string {
    const path = this.path(`made-${this.#next()}/${name}`);
    mkdirSync(dirname(path));
    writeFileSync(path, text);
    return path;
  }

  /** A new JSONL file; a text is a line as it is. */
  rows(...rows: readonly (object | string)[]): string {
    const lines = rows.map((row) => (typeof row === 'string' ? row : JSON.stringify(row)));
    return this.file(lines.map((line) => `${line}\n`).join(''), 'rows.jsonl');
  }

  /** A new, empty folder. */
  emptyFolder(): string {
    const path = this.path(`made-${this.#next()}`);
    mkdirSync(path);
    return path;
  }

  /** A copy of the model folder `source` with other files, or other bytes in them. */
  model(
    changes: Readonly<Record<string, string | Uint8Array | ((old: Buffer) => Uint8Array)>>,
    source = TINY_MODEL,
  ): string {
    const folder = this.emptyFolder();
    cpSync(source, folder, { recursive: true });
    for (const [name, change] of Object.entries(changes)) {
      const path = join(folder, name);
      writeFileSync(path, typeof change === 'function' ? change(readFileSync(path)) : change);
    }
    return folder;
  }

  /** A copy of `source` with other fields in config.json; undefined removes one. */
  config(fields: Readonly<Record<string, unknown>>, source = TINY_MODEL): string {
    const change = (old: Buffer): Buffer =>
      Buffer.from(JSON.stringify({ ...(JSON.parse(old.toString()) as object), ...fields }));
    return this.model({ 'config.json': change }, source);
  }

  /** A copy of the model whose safetensors header is another; the tensors' bytes stay. */
  header(change: (header: SafetensorsHeader) => unknown): string {
    return this.model({
      'model.safetensors': (old) => {
        const length = Number(old.readBigUInt64LE(0));
        const header = JSON.parse(old.subarray(8, 8 + length).toString()) as SafetensorsHeader;
        const text = Buffer.from(JSON.stringify(change(header)));
        const prefix = Buffer.alloc(8);
        prefix.writeBigUInt64LE(BigInt(text.length));
        return Buffer.concat([prefix, text, old.subarray(8 + length)]);
      },
    });
  }

  /** The model with a tokenizer, and other files if given. */
  textModel(files: Readonly<Record<string, string>> = {}): string {
    const tokenizer = readFileSync(join(TOKENIZER, 'tokenizer.json'));
    return this.model({ 'tokenizer.json': tokenizer, ...files });
  }

  #next(): number {
    return this.#madeCount++;
  }
}

/** A safetensors header: tensor name → entry. */
export type SafetensorsHeader = Record<
  string,
  { dtype: string; shape: number[]; data_offsets: [number, number] }
>;

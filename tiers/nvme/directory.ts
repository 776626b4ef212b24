/**
 * @file The shard directory: which state of which shard lies where, in LMDB, at
 * `<first path>/<run id>/directory`.
 *
 * All records are put by one transaction. A value is its CRC-32C (4 bytes, little-endian) and then
 * JSON, because LMDB's pages carry no checksum. `overlappingSync: false`: the default trusts the
 * boot id and lost commits in simulated power cuts within one boot. LMDB's lock does not protect
 * the data files; those have their own.
 */
import { join } from 'node:path';

import { open, type RootDatabase } from 'lmdb';

import { SpillwayError, assert } from '../../core/errors.js';
import type { ShardId, StateName } from '../../core/types.js';
import { kernels } from '../native/binding.js';
import { openFailure } from './data-file.js';
import { stateKey, type Layout } from './layout.js';

/** Version of the data files' layout and of these records. */
export const LAYOUT_VERSION = 1;

/** Where one slot of a state lies. */
export interface ShardRecord {
  readonly shard: ShardId;
  readonly state: StateName;
  readonly fileIndex: number;
  /** Bytes from the file's start to the payload; the header lies right before it. */
  readonly offset: number;
  /** Payload bytes without padding. */
  readonly byteLength: number;
  readonly slot: number;
  readonly generation: number;
}

/** What the whole directory describes. */
export interface DirectoryMeta {
  readonly layoutVersion: number;
  /** Identifies model and trainable state; whoever opens compares it. */
  readonly modelFingerprint: string;
  readonly generation: number;
  readonly recordCount: number;
}

const META_KEY = 'meta';
const RECORD_PREFIX = 'state/';

export class ShardDirectory {
  readonly path: string;
  readonly #database: RootDatabase<Buffer, string>;
  #closed: Promise<void> | undefined;

  private constructor(path: string, database: RootDatabase<Buffer, string>) {
    this.path = path;
    this.#database = database;
  }

  /**
   * Opens the directory below `runFolder`, creating it when absent.
   *
   * @throws PATH_UNWRITABLE, IO_ERROR
   */
  static open(runFolder: string): ShardDirectory {
    const path = join(runFolder, 'directory');
    try {
      const database = open<Buffer, string>({
        path,
        encoding: 'binary',
        keyEncoding: 'ordered-binary',
        overlappingSync: false,
        noSubdir: false,
      });
      return new ShardDirectory(path, database);
    } catch (error) {
      throw openFailure(path, error);
    }
  }

  /** Replaces everything by `records`, in one transaction; durable when the promise resolves. */
  async replace(
    records: readonly ShardRecord[],
    meta: Pick<DirectoryMeta, 'modelFingerprint' | 'generation'>,
  ): Promise<void> {
    assert(this.#closed === undefined, 'the directory is open');
    const whole: DirectoryMeta = {
      layoutVersion: LAYOUT_VERSION,
      recordCount: records.length,
      modelFingerprint: meta.modelFingerprint,
      generation: meta.generation,
    };
    const committed = await this.#database.transaction(() => {
      this.#database.clearSync();
      for (const record of records) this.#database.putSync(recordKey(record), encodeValue(record));
      this.#database.putSync(META_KEY, encodeValue(whole));
      return true;
    });
    assert(committed, 'the transaction ran');
    await this.#database.flushed;
  }

  /**
   * What the directory describes, or undefined when it is empty.
   *
   * @throws STATE_CORRUPT when the value is damaged or of another layout version
   */
  meta(): DirectoryMeta | undefined {
    const value = this.#database.get(META_KEY);
    if (value === undefined) return undefined;
    const meta = this.#decode(META_KEY, value) as DirectoryMeta;
    if (meta.layoutVersion !== LAYOUT_VERSION) {
      throw new SpillwayError(
        'STATE_CORRUPT',
        'the store was written by another version; start afresh',
        { path: this.path, expected: LAYOUT_VERSION, actual: meta.layoutVersion },
      );
    }
    return meta;
  }

  /**
   * All records by shard and state, verified.
   *
   * @throws STATE_CORRUPT when a value is damaged, lies under another's key, or is missing
   */
  records(): ShardRecord[] {
    const records: ShardRecord[] = [];
    const range = { start: RECORD_PREFIX, end: `${RECORD_PREFIX}\uffff` };
    for (const { key, value } of this.#database.getRange(range)) {
      const record = this.#decode(key, value) as ShardRecord;
      if (recordKey(record) !== key) throw this.#corrupt(key, 'value of another key');
      records.push(record);
    }
    const expected = this.meta()?.recordCount ?? 0;
    if (records.length !== expected) {
      throw this.#corrupt(META_KEY, `${expected} records expected, ${records.length} found`);
    }
    return records;
  }

  /** Closes the database. Idempotent. */
  close(): Promise<void> {
    this.#closed ??= this.#database.close();
    return this.#closed;
  }

  #decode(key: string, value: Buffer): unknown {
    const expected = value.byteLength < 4 ? undefined : value.readUInt32LE(0);
    const payload = Uint8Array.from(value.subarray(4));
    if (kernels().crc32c(payload) !== expected) throw this.#corrupt(key, 'checksum');
    return JSON.parse(Buffer.from(payload).toString('utf8'));
  }

  #corrupt(key: string, what: string): SpillwayError {
    const message = `shard directory is damaged: ${what}; start from a checkpoint`;
    return new SpillwayError('STATE_CORRUPT', message, { path: this.path, key });
  }
}

/** Records of slot A of every state of `layout`, at `generation`. */
export function directoryRecords(layout: Layout, generation: number): ShardRecord[] {
  return layout.states.map(({ shard, state, fileIndex, byteLength, slots }) => ({
    shard,
    state,
    fileIndex,
    offset: slots[0]!.payloadOffset,
    byteLength,
    slot: 0,
    generation,
  }));
}

function recordKey({ shard, state }: Pick<ShardRecord, 'shard' | 'state'>): string {
  return `${RECORD_PREFIX}${stateKey(shard, state)}`;
}

function encodeValue(value: ShardRecord | DirectoryMeta): Buffer {
  const payload = new TextEncoder().encode(JSON.stringify(value));
  const encoded = Buffer.alloc(4 + payload.byteLength);
  encoded.writeUInt32LE(kernels().crc32c(payload), 0);
  encoded.set(payload, 4);
  return encoded;
}

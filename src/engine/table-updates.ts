/**
 * @file Updates of tables whose rows the next step reads ahead (src/plan/tables-read-ahead.ts).
 *
 * Such a shard is updated in pieces. Whoever reads rows of a piece that no worker has taken up gets
 * their new values from a scratch buffer, by the workers' own kernel: AdamW is elementwise, so they
 * are the bits that the worker will write. Rows of a piece in work wait for it, which is short.
 *
 * Owns no memory. Nothing here lies between looking at a piece and reading it but synchronous code,
 * and pieces are handed to workers on the same thread.
 */
import { assert } from '../../core/errors.js';
import { CHUNK_ELEMENTS, elementBytes, type StateName } from '../../core/types.js';
import { kernels } from '../../tiers/native/binding.js';
import type { StateLocation } from '../../tiers/state-location.js';
import type { AdamwScalars } from '../../tiers/native/native-binding.js';
import { stateType } from '../plan/placement.js';
import {
  segmentsOf,
  type ParamAddress,
  type ParameterGroup,
  type Shard,
} from '../plan/parameter-layout.js';
import type { ParameterStore } from './parameter-store.js';

/** Elements of a piece: a worker's milliseconds, beside which handing it over is little. */
const PIECE_ELEMENTS = 4 * CHUNK_ELEMENTS;

/** A range of a shard, updated as one. */
export interface Piece {
  readonly start: number;
  readonly length: number;
  /** The last step whose update it has. */
  step: number;
  /** The update that a worker has taken up; it stays where that fails. */
  running: Promise<unknown> | undefined;
}

/** An update of a table that follows its gradient. */
interface Due {
  readonly step: number;
  readonly scalars: AdamwScalars;
}

type Bytes = Uint8Array<SharedArrayBuffer>;

/** What is read of the store. */
type Store = Pick<ParameterStore, 'layout' | 'dtype' | 'group' | 'location'>;

export class TableUpdates {
  readonly #store: Store;
  readonly #groups: ReadonlySet<number>;
  readonly #pieces = new Map<Shard, readonly Piece[]>();
  /** By group. */
  readonly #due = new Map<number, Due>();

  /** @param groups whose states are all in memory */
  constructor(store: Store, groups: ReadonlySet<number>) {
    this.#store = store;
    this.#groups = groups;
    for (const index of groups) {
      for (const shard of store.layout.groups[index]!.shards) {
        this.#pieces.set(shard, piecesOf(shard));
      }
    }
  }

  /** The step's gradients are complete: from now on rows are read as its update leaves them. */
  expect(step: number, scalarsOf: (group: ParameterGroup) => AdamwScalars): void {
    for (const index of this.#groups) {
      this.#due.set(index, { step, scalars: scalarsOf(this.#store.layout.groups[index]!) });
    }
  }

  /** Pieces of a shard that are updated one by one; undefined where it is updated as a whole. */
  piecesOf(shard: Shard): readonly Piece[] | undefined {
    return this.#pieces.get(shard);
  }

  /** Lets `run` update a piece; it says when a worker takes it up. */
  async update<T>(
    piece: Piece,
    step: number,
    run: (onStart: () => void) => Promise<T>,
  ): Promise<T> {
    const result: Promise<T> = run(() => {
      piece.running = Promise.resolve().then(() => result);
      piece.running.catch(() => undefined); // Reported by `result`.
    });
    const value = await result;
    piece.step = step;
    piece.running = undefined;
    return value;
  }

  /**
   * Copies elements `start …` of a table in memory, as stored, with the update that is due.
   *
   * @param scratch ten bytes for each element of `target`
   * @throws what the update of a piece in work throws
   */
  async read(address: ParamAddress, start: number, target: Bytes, scratch: Bytes): Promise<void> {
    const { dtype } = this.#store;
    const bytesPer = elementBytes(dtype);
    const group = this.#store.group(address);
    const count = target.byteLength / bytesPer;
    for (const segment of segmentsOf(group, address.offset + start, count)) {
      const end = segment.start + segment.length;
      for (let at = segment.start; at < end;) {
        const piece = this.#pieceAt(segment.shard, at);
        while (piece?.running !== undefined) await piece.running;
        const to = piece === undefined ? end : Math.min(end, piece.start + piece.length);
        const from = segment.offset + at - segment.start;
        const part = target.subarray(from * bytesPer, (from + to - at) * bytesPer);
        part.set(this.#bytes(segment.shard, 'param', at, to - at));
        const due = this.#due.get(group.index);
        if (piece !== undefined && due !== undefined && piece.step < due.step) {
          this.#update(segment.shard, at, part, scratch, due.scalars);
        }
        at = to;
      }
    }
  }

  /** Updates `param`, a copy of elements `start …` of a shard; its other states stay as they are. */
  #update(shard: Shard, start: number, param: Bytes, scratch: Bytes, scalars: AdamwScalars): void {
    const { dtype } = this.#store;
    const count = param.byteLength / elementBytes(dtype);
    let used = 0;
    const copy = (state: StateName): Bytes => {
      const bytes = this.#bytes(shard, state, start, count);
      const part = scratch.subarray(used, used + bytes.byteLength);
      part.set(bytes);
      used += bytes.byteLength;
      return part;
    };
    const grad = floats(this.#bytes(shard, 'grad', start, count));
    const expAvg = floats(copy('exp_avg'));
    const expAvgSq = floats(copy('exp_avg_sq'));
    if (dtype === 'float32') {
      kernels().adamw(floats(param), grad, expAvg, expAvgSq, scalars);
    } else {
      const low = halves(copy('master_lo'));
      kernels().adamwSplit(halves(param), low, grad, expAvg, expAvgSq, scalars);
    }
  }

  #pieceAt(shard: Shard, element: number): Piece | undefined {
    return this.#pieces.get(shard)?.[Math.floor(element / PIECE_ELEMENTS)];
  }

  #bytes(shard: Shard, state: StateName, start: number, count: number): Bytes {
    const location: StateLocation = this.#store.location(shard, state);
    assert(location.kind === 'memory', 'a table that is read ahead is in memory');
    const bytesPer = elementBytes(stateType(state, this.#store.dtype));
    return location.bytes.subarray(start * bytesPer, (start + count) * bytesPer);
  }
}

function piecesOf({ length }: Shard): Piece[] {
  const pieces: Piece[] = [];
  for (let start = 0; start < length; start += PIECE_ELEMENTS) {
    const count = Math.min(PIECE_ELEMENTS, length - start);
    pieces.push({ start, length: count, step: 0, running: undefined });
  }
  return pieces;
}

function floats({ buffer, byteOffset, byteLength }: Bytes): Float32Array {
  return new Float32Array(buffer, byteOffset, byteLength / 4);
}

function halves({ buffer, byteOffset, byteLength }: Bytes): Uint16Array {
  return new Uint16Array(buffer, byteOffset, byteLength / 2);
}

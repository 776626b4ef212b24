/**
 * @file Packing by best-fit-decreasing: rows in descending length, each into the sequence that it
 * fills best, else into a new one. At most 11/9 of the fewest possible sequences, plus a constant
 * (Johnson 1973); TRL's `bfd` strategy without its splitting of long rows.
 *
 * O(n log maxLength): open sequences are kept by the room that they have left.
 */
import { assert } from '../../core/errors.js';

/** Which rows each sequence holds. */
export interface PackPlan {
  /** Sequence s holds `members[starts[s]] … members[starts[s + 1] - 1]`; sequences + 1 entries. */
  readonly starts: Uint32Array;
  /** Row numbers, each once; within a sequence by descending length. */
  readonly members: Uint32Array;
}

/** Where the list of a room, or of sequences after one, ends. */
const NONE = -1;

/**
 * Packs rows into sequences of at most `maxLength` tokens. Rows of one length keep their order; of
 * sequences with equal room the one that came to it last is filled first.
 *
 * @param lengths tokens per row, 1 to `maxLength`
 */
export function packRows(lengths: ArrayLike<number>, maxLength: number): PackPlan {
  const order = byDescendingLength(lengths, maxLength);
  const sequenceOf = new Uint32Array(lengths.length);
  const rooms = new RoomSet(maxLength);
  // Sequences with equal room form a list: `newest` by room, then `older` by sequence.
  const newest = new Int32Array(maxLength + 1).fill(NONE);
  const older = new Int32Array(lengths.length);
  let sequenceCount = 0;
  for (const row of order) {
    const length = lengths[row]!;
    let room = rooms.smallestFrom(length);
    let sequence: number;
    if (room === NONE) {
      sequence = sequenceCount;
      sequenceCount += 1;
      room = maxLength;
    } else {
      sequence = newest[room]!;
      newest[room] = older[sequence]!;
      if (newest[room] === NONE) rooms.delete(room);
    }
    sequenceOf[row] = sequence;
    const left = room - length;
    if (left === 0) continue;
    if (newest[left] === NONE) rooms.add(left);
    older[sequence] = newest[left]!;
    newest[left] = sequence;
  }
  return grouped(order, sequenceOf, sequenceCount);
}

/** Row numbers by descending length, by number among equals (counting sort). */
function byDescendingLength(lengths: ArrayLike<number>, maxLength: number): Uint32Array {
  const next = new Uint32Array(maxLength + 2);
  for (let row = 0; row < lengths.length; row += 1) {
    const length = lengths[row]!;
    assert(length >= 1 && length <= maxLength, 'a row to pack fits a sequence', { row, length });
    next[maxLength - length + 1]! += 1;
  }
  for (let slot = 1; slot < next.length; slot += 1) next[slot]! += next[slot - 1]!;
  const order = new Uint32Array(lengths.length);
  for (let row = 0; row < lengths.length; row += 1) {
    const slot = maxLength - lengths[row]!;
    order[next[slot]!] = row;
    next[slot]! += 1;
  }
  return order;
}

/** Rows grouped by sequence, in the order in which they were placed. */
function grouped(order: Uint32Array, sequenceOf: Uint32Array, sequenceCount: number): PackPlan {
  const starts = new Uint32Array(sequenceCount + 1);
  for (const sequence of sequenceOf) starts[sequence + 1]! += 1;
  for (let sequence = 0; sequence < sequenceCount; sequence += 1) {
    starts[sequence + 1]! += starts[sequence]!;
  }
  const next = starts.slice();
  const members = new Uint32Array(order.length);
  for (const row of order) {
    const sequence = sequenceOf[row]!;
    members[next[sequence]!] = row;
    next[sequence]! += 1;
  }
  return { starts, members };
}

/** A set of whole numbers from 0 to `largest` as a binary tree of counts. */
class RoomSet {
  readonly #leaves: number;
  /** Node n has children 2n and 2n + 1; leaves follow from `#leaves` on. */
  readonly #counts: Uint32Array;

  constructor(largest: number) {
    this.#leaves = 2 ** Math.ceil(Math.log2(largest + 1));
    this.#counts = new Uint32Array(2 * this.#leaves);
  }

  /** Adds a number that is not in the set. */
  add(value: number): void {
    for (let node = this.#leaves + value; node >= 1; node >>= 1) this.#counts[node]! += 1;
  }

  /** Removes a number that is in the set. */
  delete(value: number): void {
    for (let node = this.#leaves + value; node >= 1; node >>= 1) this.#counts[node]! -= 1;
  }

  /** The smallest member that is at least `value`, or NONE. */
  smallestFrom(value: number): number {
    const counts = this.#counts;
    let node = this.#leaves + value;
    if (counts[node] === 0) {
      // Up until a right sibling holds a member, then down to its smallest.
      while (node > 1 && (node % 2 === 1 || counts[node + 1] === 0)) node >>= 1;
      if (node <= 1) return NONE;
      node += 1;
      while (node < this.#leaves) node = counts[2 * node]! > 0 ? 2 * node : 2 * node + 1;
    }
    return node - this.#leaves;
  }
}

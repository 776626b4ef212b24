/**
 * @file One transfer as the simulator sees it: pieces that pass through its links in order; mirrors
 * `TierManager.read` and `.write`.
 *
 * Up: pieces are read ahead from NVMe into free buffers and uploaded in order. Down: each piece is
 * read first where it is added to what is there, copied from the device, and written behind. After
 * each piece the host may work on it, while others use the device's link.
 */
import type { Link } from '../../core/types.js';
import type { EventQueue } from './event-queue.js';
import { PIECE_BYTES, type SimulatedBuffers, type SimulatedLink } from './simulated-link.js';

/** Pieces of one transfer at most, so that plans of large models are simulated quickly. */
const MOST_PIECES = 16;

/** Pieces in which `bytes` are moved, for a simulation. @param most of them */
export function pieceCount(bytes: number, most: number = MOST_PIECES): number {
  return Math.min(most, Math.max(1, Math.ceil(bytes / PIECE_BYTES)));
}

/** What transfers share. */
export interface TransferLanes {
  readonly clock: EventQueue;
  readonly links: Readonly<Record<Link, SimulatedLink>>;
  readonly readBuffers: SimulatedBuffers;
  readonly writeBuffers: SimulatedBuffers;
}

/** One transfer. */
export interface TransferShape {
  readonly priority: number;
  /** Whether it brings bytes to the device. */
  readonly isFetch: boolean;
  readonly bytes: Readonly<Partial<Record<Link, number>>>;
  /** Of all its pieces together. */
  readonly seconds: Readonly<Record<Link, number>>;
  /** Of the host, after all its pieces together. */
  readonly hostSeconds: number;
}

/** Told of a transfer's progress. */
export interface TransferEvents {
  /** Its first piece began to move at this time. */
  readonly started: (time: number) => void;
  /** It has read the device. */
  readonly copied: () => void;
  readonly done: () => void;
}

/** Starts a transfer now. */
export function startTransfer(
  shape: TransferShape,
  lanes: TransferLanes,
  events: TransferEvents,
): void {
  const moved = new Pieces(shape, lanes, events);
  if (shape.isFetch) moved.up();
  else moved.down();
}

/** Bytes and seconds of a piece. */
interface Piece {
  readonly bytes: number;
  readonly seconds: number;
}

/** The callbacks of a transfer are made once, not for each of its pieces. */
class Pieces {
  readonly #shape: TransferShape;
  readonly #lanes: TransferLanes;
  readonly #events: TransferEvents;
  readonly #count: number;
  readonly #pieces: Readonly<Record<Link, Piece>>;
  #isStarted = false;

  constructor(shape: TransferShape, lanes: TransferLanes, events: TransferEvents) {
    this.#shape = shape;
    this.#lanes = lanes;
    this.#events = events;
    const { upload = 0, download = 0, nvme_read: read = 0, nvme_write: written = 0 } = shape.bytes;
    const count = pieceCount(Math.max(upload, download, read, written));
    this.#count = count;
    const piece = (bytes: number, seconds: number): Piece => ({
      bytes: bytes / count,
      seconds: seconds / count,
    });
    this.#pieces = {
      upload: piece(upload, shape.seconds.upload),
      download: piece(download, shape.seconds.download),
      nvme_read: piece(read, shape.seconds.nvme_read),
      nvme_write: piece(written, shape.seconds.nvme_write),
    };
  }

  up(): void {
    if (this.#uses('nvme_read')) this.#upThroughBuffers();
    else this.#inTurn((next) => this.#copy('upload', next), this.#events.done);
  }

  /** Reads take the buffers that are free, and wait for one only when none is under way. */
  #upThroughBuffers(): void {
    const { readBuffers } = this.#lanes;
    const isRead: boolean[] = [];
    let begun = 0;
    let visited = 0;
    let isVisiting = false;
    const begin = (): void => {
      const index = begun;
      begun += 1;
      this.#move('nvme_read', () => {
        isRead[index] = true;
        visit();
      });
    };
    const uploaded = (): void => {
      isVisiting = false;
      visited += 1;
      readBuffers.release(1);
      advance();
    };
    const visit = (): void => {
      if (isVisiting || isRead[visited] !== true) return;
      isVisiting = true;
      this.#copy('upload', uploaded);
    };
    const fill = (): void => {
      while (begun < this.#count && readBuffers.tryAcquire(1)) begin();
      visit();
    };
    const acquired = (): void => {
      begin();
      fill();
    };
    const advance = (): void => {
      if (visited === this.#count) this.#events.done();
      else if (begun > visited) fill();
      else readBuffers.acquire(1, acquired);
    };
    advance();
  }

  down(): void {
    let open = 1;
    const close = (): void => {
      open -= 1;
      if (open === 0) this.#events.done();
    };
    const composed = (): void => {
      this.#events.copied();
      close();
    };
    if (!this.#uses('nvme_write')) {
      this.#inTurn((next) => this.#copy('download', next), composed);
      return;
    }
    const { writeBuffers } = this.#lanes;
    const buffers = this.#uses('nvme_read') ? 2 : 1;
    const written = (): void => {
      writeBuffers.release(buffers);
      close();
    };
    let next: () => void;
    const copied = (): void => {
      open += 1;
      this.#move('nvme_write', written);
      next();
    };
    const read = (): void => this.#copy('download', copied);
    const acquired = (): void => this.#move('nvme_read', read);
    this.#inTurn((follow) => {
      next = follow;
      writeBuffers.acquire(buffers, acquired);
    }, composed);
  }

  /** One piece after the other. */
  #inTurn(piece: (next: () => void) => void, done: () => void): void {
    let begun = 0;
    const next = (): void => {
      if (begun === this.#count) {
        done();
        return;
      }
      begun += 1;
      piece(next);
    };
    next();
  }

  /** A piece on the device's link, and what the host does with it. */
  #copy(link: 'upload' | 'download', done: () => void): void {
    const seconds = this.#shape.hostSeconds / this.#count;
    if (seconds === 0) {
      this.#move(link, done);
      return;
    }
    this.#move(link, () => {
      const { clock } = this.#lanes;
      clock.at(clock.now + seconds, done);
    });
  }

  #uses(link: Link): boolean {
    return (this.#shape.bytes[link] ?? 0) > 0 || this.#shape.seconds[link] > 0;
  }

  #move(link: Link, done: () => void): void {
    const { bytes, seconds } = this.#pieces[link];
    if (bytes === 0 && seconds === 0) {
      done();
      return;
    }
    const { priority } = this.#shape;
    const moved = this.#isStarted ? done : this.#noting(done);
    this.#lanes.links[link].move(priority, bytes, seconds, moved);
  }

  /** Tells when the transfer's first piece began to move. */
  #noting(done: () => void): (start: number) => void {
    return (start) => {
      if (!this.#isStarted) this.#events.started(start);
      this.#isStarted = true;
      done();
    };
  }
}

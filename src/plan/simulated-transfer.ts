/**
 * @file One transfer as the simulator sees it: pieces that pass through its links in order; mirrors
 * `TierManager.read` and `.write`.
 *
 * Up: pieces are read ahead from NVMe into free buffers and uploaded in order. Down: each piece is
 * read first where it is added to what is there, copied from the device, and written behind. After
 * each piece the host may work on it, while others use the device's link.
 */
import { LINKS, type Link } from '../../core/types.js';
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

class Pieces {
  readonly #shape: TransferShape;
  readonly #lanes: TransferLanes;
  readonly #events: TransferEvents;
  readonly #count: number;
  #isStarted = false;

  constructor(shape: TransferShape, lanes: TransferLanes, events: TransferEvents) {
    this.#shape = shape;
    this.#lanes = lanes;
    this.#events = events;
    this.#count = pieceCount(
      LINKS.reduce((most, link) => Math.max(most, shape.bytes[link] ?? 0), 0),
    );
  }

  up(): void {
    if (this.#uses('nvme_read')) this.#upThroughBuffers();
    else this.#inTurn(0, (next) => this.#copy('upload', next), this.#events.done);
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
    const visit = (): void => {
      if (isVisiting || isRead[visited] !== true) return;
      isVisiting = true;
      this.#copy('upload', () => {
        isVisiting = false;
        visited += 1;
        readBuffers.release(1);
        advance();
      });
    };
    const advance = (): void => {
      if (visited === this.#count) {
        this.#events.done();
        return;
      }
      const fill = (): void => {
        while (begun < this.#count && readBuffers.tryAcquire(1)) begin();
        visit();
      };
      if (begun > visited) fill();
      else
        readBuffers.acquire(1, () => {
          begin();
          fill();
        });
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
      this.#inTurn(0, (next) => this.#copy('download', next), composed);
      return;
    }
    const { writeBuffers } = this.#lanes;
    const buffers = this.#uses('nvme_read') ? 2 : 1;
    const piece = (next: () => void): void => {
      writeBuffers.acquire(buffers, () => {
        this.#move('nvme_read', () => {
          this.#copy('download', () => {
            open += 1;
            this.#move('nvme_write', () => {
              writeBuffers.release(buffers);
              close();
            });
            next();
          });
        });
      });
    };
    this.#inTurn(0, piece, composed);
  }

  /** One piece after the other. */
  #inTurn(index: number, piece: (next: () => void) => void, done: () => void): void {
    if (index === this.#count) done();
    else piece(() => this.#inTurn(index + 1, piece, done));
  }

  /** A piece on the device's link, and what the host does with it. */
  #copy(link: 'upload' | 'download', done: () => void): void {
    const seconds = this.#shape.hostSeconds / this.#count;
    this.#move(link, () => {
      const { clock } = this.#lanes;
      if (seconds === 0) done();
      else clock.at(clock.now + seconds, done);
    });
  }

  #uses(link: Link): boolean {
    return (this.#shape.bytes[link] ?? 0) > 0 || this.#shape.seconds[link] > 0;
  }

  #move(link: Link, done: () => void): void {
    const { bytes, seconds, priority } = this.#shape;
    const pieceBytes = (bytes[link] ?? 0) / this.#count;
    const pieceSeconds = seconds[link] / this.#count;
    if (pieceBytes === 0 && pieceSeconds === 0) {
      done();
      return;
    }
    this.#lanes.links[link].move(priority, pieceBytes, pieceSeconds, (start) => {
      if (!this.#isStarted) this.#events.started(start);
      this.#isStarted = true;
      done();
    });
  }
}

/**
 * @file Turns on the links between the tiers: pieces of transfers that run side by side, the lowest
 * operation first, at most at the rate that a throttle allows.
 *
 * Piece by piece, so that a small fetch that compute waits for does not wait for a large one ahead
 * of time.
 */
import { CHUNK_ELEMENTS, type Link } from '../../core/types.js';
import type { Turns } from '../../tiers/tier-manager.js';
import { Lane } from './lane.js';
import { sleepUntil } from './sleep-until.js';

/** Bytes per second at most, by link. */
export type Throttles = Readonly<Partial<Record<Link, number>>>;

/** Pieces under way at once: enough that the next is queued when one ends (the device's queues),
 * and that a disk reaches its plateau. */
const IN_FLIGHT: Readonly<Record<Link, number>> = {
  upload: 2,
  download: 2,
  nvme_read: 8,
  nvme_write: 8,
};

/** What updates move at a time: one chunk of float32. */
const PIECE_BYTES = CHUNK_ELEMENTS * 4;

/** Told of each piece, in milliseconds of `performance.now()`. */
export type OnPiece = (
  operation: number,
  link: Link,
  bytes: number,
  start: number,
  end: number,
) => void;

/** The turns of one operation. */
export interface OperationTurns extends Turns {
  /** Milliseconds so far, from its first piece on, in which none of its pieces moved or waited: what
   * the host does between them, summing and checking gradients for example. */
  hostMs(): number;
}

export class LinkTurns {
  readonly #lanes: Readonly<Record<Link, Lane>>;
  readonly #throttles: Throttles;
  readonly #onPiece: OnPiece | undefined;
  /** When each throttled link is free again. */
  readonly #freeAt: Record<Link, number> = { upload: 0, download: 0, nvme_read: 0, nvme_write: 0 };

  constructor(throttles: Throttles = {}, onPiece?: OnPiece) {
    this.#throttles = throttles;
    this.#onPiece = onPiece;
    this.#lanes = {
      upload: new Lane(IN_FLIGHT.upload),
      download: new Lane(IN_FLIGHT.download),
      nvme_read: new Lane(IN_FLIGHT.nvme_read),
      nvme_write: new Lane(IN_FLIGHT.nvme_write),
    };
  }

  /** The turns of one operation. @param onBytes told what has been moved */
  of(operation: number, onBytes?: (link: Link, bytes: number) => void): OperationTurns {
    let open = 0;
    let hostMs = 0;
    let idleSince: number | undefined;
    const idleMs = (): number => (idleSince === undefined ? 0 : performance.now() - idleSince);
    return {
      hostMs: () => hostMs + idleMs(),
      take: async (link, bytes, body) => {
        hostMs += idleMs();
        idleSince = undefined;
        open += 1;
        const lane = this.#lanes[link];
        await lane.enter(operation);
        const start = performance.now();
        try {
          const paced = this.#pace(link, bytes);
          const result = await body();
          await paced;
          return result;
        } finally {
          lane.leave();
          this.#onPiece?.(operation, link, bytes, start, performance.now());
          onBytes?.(link, bytes);
          open -= 1;
          if (open === 0) idleSince = performance.now();
        }
      },
    };
  }

  /** Keeps a throttled link as busy as moving `bytes` does; others move them, in the background. */
  async occupy(operation: number, link: Link, bytes: number): Promise<void> {
    if (this.#throttles[link] === undefined) return;
    const lane = this.#lanes[link];
    const pieces: Promise<void>[] = [];
    for (let left = bytes; left > 0; left -= PIECE_BYTES) {
      const turn = async (): Promise<void> => {
        await lane.enter(operation);
        await this.#pace(link, Math.min(left, PIECE_BYTES));
        lane.leave();
      };
      pieces.push(turn());
    }
    await Promise.all(pieces);
  }

  /** Resolves when a throttled link has had the time to move `bytes` after all before. */
  async #pace(link: Link, bytes: number): Promise<void> {
    const rate = this.#throttles[link];
    if (rate === undefined) return;
    const end = Math.max(performance.now(), this.#freeAt[link]) + (bytes / rate) * 1000;
    this.#freeAt[link] = end;
    await sleepUntil(end);
  }
}

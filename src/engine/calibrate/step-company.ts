/**
 * @file What runs beside the kernels of a step: its uploads, its gradients on their way home, its
 * updates, by the ways that they take in a run. They share cores, caches and memory with kernels and
 * with one another, so that all of them are measured together.
 *
 * Bytes and elements are those of the step's plan; memory is used over and over.
 */
import { NORM_LEAF_ELEMENTS } from '../../../core/types.js';
import type { CopyCosts } from './cost-store.js';
import type { LinkCost, UpdateCosts } from '../../plan/costs.js';
import { PIECE_BYTES } from '../../plan/simulated-link.js';
import type { Operation } from '../../plan/step-plan.js';
import type { TransferWork } from '../../plan/transfer-work.js';
import { QUARTER_BYTES, type CopyArea } from './copy-area.js';
import type { UpdateArea } from './update-area.js';

/** What a step's company works with; its caller owns all of it. */
export interface CompanyParts {
  readonly copies: CopyArea;
  readonly updates: UpdateArea;
  /** Of the step's operations. */
  readonly transferWork: (operation: Operation) => TransferWork;
}

/** What copies and updates cost. */
export interface CompanyCosts {
  readonly copies: CopyCosts;
  readonly update: UpdateCosts;
}

/** Parts begin at multiples of it: pages, and whole leaves of gradients. */
const GRAIN = NORM_LEAF_ELEMENTS * 4;

export class StepCompany {
  readonly #parts: CompanyParts;
  readonly #uploads: Flow;
  readonly #gradients: Flow;
  readonly #updates: Flow;
  #copiedSeconds = 0;

  constructor(parts: CompanyParts) {
    const { copies, updates } = parts;
    this.#parts = parts;
    const { byteLength } = copies;
    this.#uploads = new Flow(byteLength, (bytes, at) => copies.upload(at, bytes));
    this.#gradients = new Flow(byteLength, async (bytes, at) => {
      const { copied } = await copies.gradient(at, bytes, 'replace');
      this.#copiedSeconds += copied;
    });
    this.#updates = new Flow(updates.length, (elements) => updates.update(elements));
  }

  /** Starts what an operation moves or updates, behind what was started before. */
  start(operation: Operation): void {
    const { action, bytes } = operation;
    const { transferWork, updates } = this.#parts;
    const { upload = 0, download = 0 } = bytes;
    const piece = upload / Math.max(1, transferWork(operation).pieces);
    this.#uploads.add(upload, Math.min(QUARTER_BYTES, piece));
    this.#gradients.add(download, QUARTER_BYTES);
    if (action.kind === 'update') this.#updates.add(action.length, updates.length);
  }

  /** The step's transfers are over. Its updates go on. */
  async finish(): Promise<void> {
    await Promise.all([this.#uploads.settled(), this.#gradients.settled()]);
  }

  /** All updates are over. */
  async updated(): Promise<void> {
    await this.#updates.settled();
  }

  /** Nothing is under way any more, however it ended. */
  async settled(): Promise<void> {
    await Promise.allSettled([this.finish(), this.updated()]);
  }

  /** Forgets what was measured until now. */
  reset(): void {
    for (const flow of [this.#uploads, this.#gradients, this.#updates]) flow.reset();
    this.#copiedSeconds = 0;
  }

  /**
   * What was measured, at the latencies of `alone`; that where a step has none of it.
   */
  costs({ copies, update }: CompanyCosts): CompanyCosts {
    const [up, down, updated] = [this.#uploads, this.#gradients, this.#updates];
    const link = (
      cost: LinkCost,
      { amount, parts }: Pick<Flow, 'amount' | 'parts'>,
      seconds: number,
    ): LinkCost => {
      if (amount === 0) return cost;
      const latency = Math.min(cost.secondsPerPiece, seconds / parts / 2);
      return { bytesPerSecond: amount / (seconds - parts * latency), secondsPerPiece: latency };
    };
    const hostSeconds = down.seconds - this.#copiedSeconds;
    return {
      copies: {
        upload: link(copies.upload, up, up.seconds),
        // A gradient comes in pieces.
        download: link(
          copies.download,
          { amount: down.amount, parts: Math.ceil(down.amount / PIECE_BYTES) },
          this.#copiedSeconds,
        ),
        host:
          down.amount === 0
            ? copies.host
            : { ...copies.host, checkedBytesPerSecond: down.amount / hostSeconds },
      },
      update:
        updated.amount === 0
          ? update
          : { ...update, updateElementsPerSecond: updated.amount / updated.seconds },
    };
  }
}

/** Things of one kind, moved one part after the other over the same memory. */
class Flow {
  readonly #length: number;
  readonly #move: (amount: number, at: number) => Promise<void>;
  readonly #waiting: { amount: number; readonly part: number }[] = [];
  #position = 0;
  #running: Promise<void> | undefined;
  amount = 0;
  seconds = 0;
  parts = 0;

  /** @param length of the memory */
  constructor(length: number, move: (amount: number, at: number) => Promise<void>) {
    this.#length = length;
    this.#move = move;
  }

  /** @param part most that is moved as one */
  add(amount: number, part: number): void {
    if (amount === 0) return;
    this.#waiting.push({ amount, part: Math.ceil(part / GRAIN) * GRAIN });
    if (this.#running !== undefined) return;
    this.#running = this.#run();
    this.#running.catch(() => undefined); // Whoever waits sees it.
  }

  /** Nothing is under way. @throws what moving throws */
  async settled(): Promise<void> {
    await this.#running;
  }

  reset(): void {
    this.amount = 0;
    this.seconds = 0;
    this.parts = 0;
  }

  async #run(): Promise<void> {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const amount = Math.min(next.part, next.amount);
      next.amount -= amount;
      if (next.amount === 0) this.#waiting.shift();
      const at = this.#place(amount);
      const start = performance.now();
      await this.#move(amount, at);
      this.seconds += (performance.now() - start) / 1000;
      this.amount += amount;
      this.parts += 1;
    }
    this.#running = undefined;
  }

  /** Behind what was moved before, in one quarter. */
  #place(amount: number): number {
    const left = QUARTER_BYTES - (this.#position % QUARTER_BYTES);
    if (amount > left) this.#position += left;
    if (this.#position + amount > this.#length) this.#position = 0;
    const at = this.#position;
    this.#position += Math.ceil(amount / GRAIN) * GRAIN;
    return at;
  }
}

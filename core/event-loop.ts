/**
 * @file Keeps the event loop free during long synchronous work that is done in pieces.
 */
import { setImmediate } from 'node:timers/promises';

/** Longest stretch without a turn of the event loop, in milliseconds. */
const SLICE_MS = 2;

/** Call `pause` between pieces; it lets the event loop turn when the last turn is long ago. */
export class EventLoopPauses {
  #last = performance.now();

  async pause(): Promise<void> {
    if (performance.now() - this.#last < SLICE_MS) return;
    await setImmediate();
    this.#last = performance.now();
  }
}

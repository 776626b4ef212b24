/**
 * @file Counters of the bytes held in each tier: one event per change, and between two readings the
 * most that the device held, which operations take and give back.
 */
import { TIERS, type Tier } from '../../../core/types.js';
import type { Engine } from '../../engine/engine.js';
import { PROCESSES, type TraceEvent } from './trace-event.js';
import { toNanoseconds } from './trace-process.js';

/** What counters are read from. */
export type CountedEngine = Pick<Engine, 'heldBytes' | 'takeHighDeviceBytes'>;

export class HeldCounters {
  readonly #held: Record<Tier, number> = { device: -1, host: -1, nvme: -1 };
  #readAt = 0;

  /** Reads what is held. @param time microseconds of the trace */
  read(engine: CountedEngine, time: number, write: (event: TraceEvent) => void): void {
    const { heldBytes } = engine;
    const high = engine.takeHighDeviceBytes();
    const now = toNanoseconds(time);
    if (high > Math.max(heldBytes.device, this.#held.device)) {
      this.#note('device', toNanoseconds((this.#readAt + now) / 2), high, write);
    }
    for (const tier of TIERS) this.#note(tier, now, heldBytes[tier], write);
    this.#readAt = now;
  }

  #note(tier: Tier, ts: number, bytes: number, write: (event: TraceEvent) => void): void {
    if (this.#held[tier] === bytes) return;
    this.#held[tier] = bytes;
    const place = { pid: PROCESSES.measured, tid: 0, ts };
    write({ ph: 'C', name: tier, cat: 'tier', ...place, args: { bytes } });
  }
}

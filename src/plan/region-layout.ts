/**
 * @file Where a device's region has its parts: parameters of blocks first; over them or behind them
 * the head's own parameters and its tiles; then activations, of inference caches too. Pure functions.
 */
import type { RegionPlan } from './step-plan.js';

/** Sizes of the parts, in bytes, and how many there are of each. */
export interface RegionParts {
  readonly paramSlots: number;
  readonly paramSlotBytes: number;
  /** What the head keeps while its tiles pass. */
  readonly headBytes: number;
  readonly tileSlots: number;
  readonly tileSlotBytes: number;
  /** Whether head and tiles lie behind the parameters. */
  readonly tilesApart: boolean;
  readonly activationSlots: number;
  readonly activationSlotBytes: number;
  /** Whether activations lie behind all else, and not over it. */
  readonly activationsApart: boolean;
}

/** The region of these parts; there are no slots of nothing. */
export function layOutRegion(parts: RegionParts): RegionPlan {
  const { paramSlotBytes, headBytes, tileSlots, tileSlotBytes, activationSlotBytes } = parts;
  const paramSlots = paramSlotBytes === 0 ? 0 : parts.paramSlots;
  const activationSlots = activationSlotBytes === 0 ? 0 : parts.activationSlots;
  const paramBytes = paramSlots * paramSlotBytes;
  const headOffset = parts.tilesApart ? paramBytes : 0;
  const tileOffset = headOffset + headBytes;
  const below = Math.max(paramBytes, tileOffset + tileSlots * tileSlotBytes);
  const activationOffset = parts.activationsApart ? below : 0;
  return {
    paramSlots,
    paramSlotBytes,
    activationSlots,
    activationSlotBytes,
    activationOffset,
    tileSlots,
    tileSlotBytes,
    tileOffset,
    headOffset,
    byteLength: Math.max(below, activationOffset + activationSlots * activationSlotBytes),
  };
}

/**
 * @file The decisions that a memory plan starts from: everything as far from the device as it may be.
 *
 * Where the files have no room for all of that, what is wanted nearest leaves them first, as far as
 * host and device allow; where that is not enough, nothing is in files. What the host has no room for
 * then goes to the device.
 */
import type { Tier } from '../../core/types.js';
import { MIN_STAGING } from '../../tiers/host/staging-pool.js';
import type { Decisions } from './decisions.js';
import { movables, statesForDevice, type Movable } from './movables.js';
import { PeakBytes, type PlanSizes } from './peak-bytes.js';
import type { MemoryPlanInput, OffloadDevice } from './placement.js';

/** The decisions to start from, and their peaks; undefined where nothing fits. */
export function startPlacement(sizes: PlanSizes): PeakBytes | undefined {
  const { input } = sizes;
  const peaks = new PeakBytes(sizes, farthest(sizes));
  if (input.nvmePathCount > 0) {
    relieve(input, peaks, 'nvme', 'host', movables(input, peaks));
    relieve(input, peaks, 'nvme', 'device', movables(input, peaks));
    relieve(input, peaks, 'nvme', 'device', statesForDevice(input, peaks));
    // These need no staging buffers any longer, which may leave room.
    relieve(input, peaks, 'nvme', 'host', movables(input, peaks));
    if (peaks.fits) return peaks;
  }
  const inMemory = new PeakBytes(sizes, farthest(sizes, 'host'));
  relieve(input, inMemory, 'host', 'device', statesForDevice(input, inMemory));
  relieve(input, inMemory, 'host', 'device', movables(input, inMemory));
  return inMemory.fits ? inMemory : undefined;
}

/** Decisions with everything as far from the device as wishes and paths allow. */
export function farthest(
  { input, need, accumulators }: PlanSizes,
  far: Tier = input.nvmePathCount > 0 ? 'nvme' : 'host',
): Decisions {
  const optimizer = forcedHome(input.offloadOptimizer) ?? far;
  return {
    headWave: 1,
    homes: input.layout.groups.map(() => ({
      param: forcedHome(input.offloadParam) ?? far,
      optimizer,
      // Gradients follow a forced optimizer home, except that NVMe is only where they spill to.
      grad: optimizer === 'nvme' ? far : optimizer,
    })),
    activationTiers: input.blocks.map((_, block) =>
      block === 0 ? [] : Array.from({ length: need.slotCount }, () => far),
    ),
    accumulatorTiers: accumulators.map(() => far),
    paramSlots: 1,
    activationSlots: need.leastActivationSlots,
    tileSlots: 1,
    tilesApart: false,
    spillLag: 0,
    stagingCount: MIN_STAGING.read,
    spillStagingCount: MIN_STAGING.write,
    optimizerDepth: 1,
  };
}

function forcedHome(offload: OffloadDevice): Tier | undefined {
  switch (offload) {
    case 'none':
      return 'device';
    case 'cpu':
      return 'host';
    case 'nvme':
      return 'nvme';
    case 'auto':
      return undefined;
  }
}

/** Moves one thing after the other until `from` holds no more than it may, each where `to` has room. */
function relieve(
  { budgets }: MemoryPlanInput,
  peaks: PeakBytes,
  from: Tier,
  to: Tier,
  things: Iterable<Movable>,
): void {
  const fits = (tier: Tier): boolean => peaks.bytes[tier] <= budgets[tier];
  for (const thing of things) {
    if (fits(from)) return;
    if (thing.tier !== from || !thing.tiers.includes(to)) continue;
    thing.move(to);
    if (!fits(to)) thing.move(from);
  }
}

/**
 * @file The decisions that a memory plan starts from: everything as far from the device as it may be.
 *
 * Where the files have no room for all of that, what is wanted nearest leaves them first, as far as
 * host and device allow; where that is not enough, nothing is in files.
 */
import type { Tier } from '../../core/types.js';
import { MIN_STAGING } from '../../tiers/host/staging-pool.js';
import type { Decisions } from './decisions.js';
import { movables, wishFor, type Movable } from './movables.js';
import { PeakBytes, type PlanSizes } from './peak-bytes.js';
import type { OffloadDevice } from './placement.js';

/** The decisions to start from, and their peaks; undefined where nothing fits. */
export function startPlacement(sizes: PlanSizes): PeakBytes | undefined {
  const peaks = new PeakBytes(sizes, farthest(sizes));
  leaveFiles(sizes, peaks);
  if (sizes.input.nvmePathCount === 0) moveToDevice(sizes, peaks);
  if (peaks.fits || sizes.input.nvmePathCount === 0) return peaks.fits ? peaks : undefined;
  const withoutFiles = new PeakBytes(sizes, farthest(sizes, 'host'));
  moveToDevice(sizes, withoutFiles);
  return withoutFiles.fits ? withoutFiles : undefined;
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

/** Takes out of files what is too much for them: to the host, then to the device. */
function leaveFiles({ input }: PlanSizes, peaks: PeakBytes): void {
  const { budgets } = input;
  const filesFit = (): boolean => peaks.bytes.nvme <= budgets.nvme;
  const memoryFits = (): boolean =>
    peaks.bytes.device <= budgets.device && peaks.bytes.host <= budgets.host;
  if (filesFit() || !memoryFits()) return;
  const leave = (thing: Movable, tier: Tier): void => {
    thing.move(tier);
    if (!memoryFits()) thing.move('nvme');
  };
  for (const tier of ['host', 'device'] as const) {
    for (const thing of movables(input, peaks)) {
      if (filesFit()) return;
      if (thing.tier === 'nvme' && thing.tiers.includes(tier)) leave(thing, tier);
    }
  }
}

/** Without files, states that the host has no room for go to a device that the CPU addresses. */
function moveToDevice({ input }: PlanSizes, peaks: PeakBytes): void {
  if (!input.hostAddressableDevice) return;
  for (const state of ['param', 'grad', 'optimizer'] as const) {
    if (wishFor(state, input) !== 'auto') continue;
    for (const { index } of input.layout.groups) {
      if (peaks.bytes.host <= input.budgets.host) return;
      peaks.moveHome(index, state, 'device');
    }
  }
}

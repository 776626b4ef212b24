/**
 * @file The most bytes that each tier holds at any time, kept up to date as decisions change.
 *
 * Device: what is resident, and what a step needs beside it. Host: leases, staging and row gradients.
 * NVMe: the layout, exactly. Upper bounds that the ledgers enforce. A planner changes one of thousands
 * of decisions at a time, so the sums of what is resident change by the difference, and the rest is
 * worked out again only after a change that it depends on.
 *
 * Owns the decisions while it lives: they change through its methods alone.
 */
import { alignUp } from '../../core/bytes.js';
import { IO_ALIGNMENT, type StateName, type Tier } from '../../core/types.js';
import { STAGING_BUFFER_BYTES } from '../../tiers/host/staging-pool.js';
import type { Choices, Decisions } from './decisions.js';
import type { DeviceNeed } from './device-need.js';
import type { GroupHomes, MemoryPlanInput, UseAccumulator } from './placement.js';
import type { StateSizes } from './state-sizes.js';
import { chargedBytes } from './tensor-bytes.js';

/** What stays the same whatever is decided. */
export interface PlanSizes {
  readonly input: MemoryPlanInput;
  /** Of the input's layout and dtype. */
  readonly states: StateSizes;
  readonly need: DeviceNeed;
  readonly accumulators: readonly UseAccumulator[];
}

export class PeakBytes {
  readonly #sizes: PlanSizes;
  readonly #decisions: Decisions;
  /** States, activation checkpoints and accumulators, by tier. */
  readonly #resident: Record<Tier, number>;
  /** Checkpoints of each block's input that are away from the device. */
  readonly #awayCounts: number[];
  /** Undefined after a change that they depend on. */
  #region: number | undefined;
  #transient: number | undefined;
  #hostFixed: number | undefined;

  constructor(sizes: PlanSizes, decisions: Decisions) {
    this.#sizes = sizes;
    this.#decisions = decisions;
    this.#resident = residentBytes(sizes, decisions);
    this.#awayCounts = decisions.activationTiers.map(
      (tiers) => tiers.filter((tier) => tier !== 'device').length,
    );
  }

  get decisions(): Readonly<Decisions> {
    return this.#decisions;
  }

  get bytes(): Record<Tier, number> {
    const { device, host, nvme } = this.#resident;
    const { need } = this.#sizes;
    this.#region ??= need.regionBytes(this.#decisions);
    this.#transient ??= need.transientBytes(this.#decisions);
    this.#hostFixed ??= this.#hostFixedBytes();
    return {
      device: device + this.#region + this.#transient,
      host: host + this.#hostFixed,
      nvme,
    };
  }

  get fits(): boolean {
    const { budgets } = this.#sizes.input;
    const { device, host, nvme } = this.bytes;
    return device <= budgets.device && host <= budgets.host && nvme <= budgets.nvme;
  }

  /** States of which some trainable shard is on NVMe. */
  get nvmeStates(): StateName[] {
    return this.#sizes.states.nvmeStates(this.#decisions.homes);
  }

  choose(changes: Partial<Choices>): void {
    Object.assign(this.#decisions, changes);
    this.#region = undefined;
    if ('headWave' in changes || 'spillLag' in changes) this.#transient = undefined;
    this.#hostFixed = undefined;
  }

  moveHome(group: number, state: keyof GroupHomes, tier: Tier): void {
    const homes = this.#decisions.homes[group]!;
    const before = homes[state];
    const { states } = this.#sizes;
    this.#resident[before] -= states.bytesAt(group, state, before);
    this.#resident[tier] += states.bytesAt(group, state, tier);
    homes[state] = tier;
    // Parameters on the device are read where they live; states on NVMe pass through staging.
    if (state === 'param' && (before === 'device' || tier === 'device')) this.#region = undefined;
    if (before === 'nvme' || tier === 'nvme') this.#hostFixed = undefined;
  }

  moveActivation(block: number, slot: number, tier: Tier): void {
    const tiers = this.#decisions.activationTiers[block]!;
    const before = tiers[slot]!;
    const bytes = this.#sizes.need.slotBytes(block);
    this.#resident[before] -= activationBytes(bytes, before);
    this.#resident[tier] += activationBytes(bytes, tier);
    tiers[slot] = tier;
    const away = (tier === 'device' ? 0 : 1) - (before === 'device' ? 0 : 1);
    if (away === 0) return;
    const counts = this.#awayCounts;
    const count = counts[block]! + away;
    // A slot of the region is for the largest block of which some checkpoint is away.
    if (count === 0 || counts[block] === 0) this.#region = undefined;
    counts[block] = count;
  }

  moveAccumulator(index: number, tier: Tier): void {
    const tiers = this.#decisions.accumulatorTiers;
    const bytes = accumulatorBytes(this.#sizes.accumulators[index]!);
    this.#resident[tiers[index]!] -= bytes;
    this.#resident[tier] += bytes;
    tiers[index] = tier;
  }

  /** Staging buffers, the optimizer's, and the row gradients of the whole batch and of one
   * micro-batch. */
  #hostFixedBytes(): number {
    const { rowGatherBytes, microBatchCount, optimizerStagingBytes } = this.#sizes.input;
    const buffers = microBatchCount > 1 ? microBatchCount + 1 : 1;
    const rows = rowGatherBytes.reduce(
      (sum, bytes) =>
        sum +
        alignUp(bytes * (buffers - 1 || 1), IO_ALIGNMENT) +
        (buffers > 1 ? alignUp(bytes, IO_ALIGNMENT) : 0),
      0,
    );
    const { stagingCount, spillStagingCount, optimizerDepth } = this.#decisions;
    return (
      (stagingCount + spillStagingCount) * STAGING_BUFFER_BYTES +
      optimizerStagingBytes(optimizerDepth, this.nvmeStates) +
      rows
    );
  }
}

function residentBytes(
  { states, need, accumulators }: PlanSizes,
  { homes, activationTiers, accumulatorTiers }: Decisions,
): Record<Tier, number> {
  const sums = states.bytesPerTier(homes);
  for (const [block, tiers] of activationTiers.entries()) {
    const slot = need.slotBytes(block);
    for (const tier of tiers) sums[tier] += activationBytes(slot, tier);
  }
  for (const [index, use] of accumulators.entries()) {
    sums[accumulatorTiers[index]!] += accumulatorBytes(use);
  }
  return sums;
}

/** What a checkpoint of `bytes` takes in a tier. */
function activationBytes(bytes: number, tier: Tier): number {
  return tier === 'device' ? chargedBytes(bytes) : alignUp(bytes, IO_ALIGNMENT);
}

function accumulatorBytes({ param }: UseAccumulator): number {
  return alignUp(param.length * 4, IO_ALIGNMENT);
}

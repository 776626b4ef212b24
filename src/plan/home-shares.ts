/**
 * @file How much of each state lives where, by elements.
 */
import { TIERS, type Tier } from '../../core/types.js';
import type { GroupHomes } from './placement.js';

/** Kinds of state that have homes. */
export const HOMED_STATES = ['param', 'grad', 'optimizer'] as const;

/** Shares of one kind of state at each tier; they add up to 1, or are 0 where there is no state. */
export type TierShares = Readonly<Record<Tier, number>>;

/**
 * Shares per state and tier.
 *
 * @param homes homes of each group
 * @param lengths elements of each group, in the same order
 */
export function homeShares(
  homes: readonly Readonly<GroupHomes>[],
  lengths: readonly number[],
): Record<keyof GroupHomes, TierShares> {
  const total = lengths.reduce((sum, length) => sum + length, 0);
  const sharesOf = (state: keyof GroupHomes): TierShares => {
    const held: Record<Tier, number> = { device: 0, host: 0, nvme: 0 };
    for (const [group, home] of homes.entries()) held[home[state]] += lengths[group] ?? 0;
    for (const tier of TIERS) held[tier] /= Math.max(1, total);
    return held;
  };
  return { param: sharesOf('param'), grad: sharesOf('grad'), optimizer: sharesOf('optimizer') };
}

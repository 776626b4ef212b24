/**
 * @file Costs of a machine whose links a run holds back.
 */
import { LINKS, type Link } from '../../core/types.js';
import type { Throttles } from '../engine/link-turns.js';
import type { LinkCost, MachineCosts } from '../plan/costs.js';

/** The same machine with slower links. */
export function throttledCosts(machine: MachineCosts, throttles: Throttles): MachineCosts {
  const links = LINKS.map((link): [Link, LinkCost] => {
    const { bytesPerSecond, secondsPerPiece } = machine.links[link];
    const most = throttles[link];
    if (most === undefined) return [link, machine.links[link]];
    return [link, { bytesPerSecond: Math.min(bytesPerSecond, most), secondsPerPiece }];
  });
  return { ...machine, links: Object.fromEntries(links) as Record<Link, LinkCost> };
}

/**
 * @file Tables whose rows the next step reads ahead of their update.
 *
 * The first block needs few rows of a table whose update may be the longest of all, and needs them
 * before anything else can run. Where all states of a table are in memory, its rows are computed on
 * the side (src/engine/table-updates.ts), and the sweep comes to the table when a block needs the
 * whole of it: the head, if they are tied. A table with states on NVMe, which move as whole chunks,
 * is updated first.
 *
 * Pure.
 */
import type { Block } from '../model/block.js';
import type { ParameterLayout } from './parameter-layout.js';
import { homeOf, statesOf } from './placement.js';
import type { StateHomes } from './transfer-bytes.js';

/** Groups of such tables. */
export function tablesReadAhead(
  blocks: readonly Block[],
  layout: ParameterLayout,
  { homes, dtype }: StateHomes,
): ReadonlySet<number> {
  const [first] = blocks;
  if (first?.kind !== 'row') return new Set();
  const groups = first.gathers.flatMap(({ param }) => {
    const group = layout.groups[layout.params.get(param)!.group]!;
    const inMemory = statesOf(group, dtype).every(
      (state) => homeOf(homes[group.index]!, state) !== 'nvme',
    );
    return group.trainable && inMemory ? [group.index] : [];
  });
  return new Set(groups);
}

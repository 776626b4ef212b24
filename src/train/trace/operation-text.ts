/**
 * @file Operations as a trace shows them.
 */
import type { Lane } from '../../../core/types.js';
import type { Action, Operation } from '../../plan/step-plan.js';
import type { OperationArguments, Track } from './trace-event.js';

/** The track of an operation's work on a lane: that of what stays within host memory, which a plan
 * shows as a write to NVMe, is the host's own. */
export function trackOf({ bytes }: Operation, lane: Lane): Track {
  return lane === 'nvme_write' && bytes.nvme_write === undefined ? 'host' : lane;
}

/** What an action is called: its kind, and the block, tile or shard that it works on. */
export function nameOf(action: Action): string {
  if ('shard' in action) return `${action.kind} ${action.shard}`;
  if ('block' in action) return `${action.kind} ${action.block}`;
  if ('tile' in action) return `${action.kind} ${action.tile}`;
  return action.kind;
}

/** Where in the model an action works. */
export function placeOf(action: Action): Partial<OperationArguments> {
  return {
    ...('block' in action && { block: action.block }),
    ...('microBatch' in action && { micro_batch: action.microBatch }),
    ...('microBatches' in action && { micro_batches: action.microBatches }),
    ...('tile' in action && { tile: action.tile }),
    ...('shard' in action && { shard: action.shard, group: action.group }),
    ...('param' in action && { param: action.param }),
  };
}

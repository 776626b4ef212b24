/**
 * @file One unit of optimizer work: the AdamW update of one shard, as plain data for a worker.
 */
import type { AdamwScalars } from '../../tiers/native/native-binding.js';
import type { StateLocation } from '../../tiers/state-location.js';

/** Update `length` elements; every state may live in memory or on NVMe, independently. */
export interface ShardUpdate {
  readonly length: number;
  /** float32, or bfloat16 bits when `masterLo` is present. */
  readonly param: StateLocation;
  readonly masterLo?: StateLocation;
  readonly grad: StateLocation;
  readonly expAvg: StateLocation;
  readonly expAvgSq: StateLocation;
  readonly scalars: AdamwScalars;
  /** Count the elements whose float32 master changes; costs about as much as the update itself. */
  readonly countChanges?: boolean;
}

/** What an update moved and saw. */
export interface ShardUpdateResult {
  readonly nvmeReadBytes: number;
  readonly nvmeWrittenBytes: number;
  /** Elements of `param` (float32 master bits) that changed; absent unless `countChanges` asked. */
  readonly changedCount?: number;
}

/**
 * @file Hands shards to the optimizer pool, and counts what an update moves and changes.
 */
import { SpillwayError } from '../../core/errors.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import { adamwScalars, type AdamwOptions } from '../optim/adamw-options.js';
import type { OptimizerPool } from '../optim/optimizer-pool.js';
import type { ShardUpdate } from '../optim/shard-update.js';
import type { ParameterGroup, Shard } from '../plan/parameter-layout.js';
import type { ParameterStore } from './parameter-store.js';

/** Scalars of one step's update. */
export interface UpdateSettings {
  readonly options: AdamwOptions;
  /** Optimizer step, one-based. */
  readonly step: number;
  readonly learningRate: number;
  readonly gradScale: number;
  /** Count changed weights and fail when none did. */
  readonly assertChange: boolean;
}

export class ShardUpdates {
  readonly #tiers: TierManager;
  readonly #store: ParameterStore;
  readonly #pool: OptimizerPool;
  #changedCount = 0;

  constructor(tiers: TierManager, store: ParameterStore, pool: OptimizerPool) {
    this.#tiers = tiers;
    this.#store = store;
    this.#pool = pool;
  }

  /**
   * Updates one shard; its states hold the new values when the promise resolves.
   *
   * @param onStart called when a worker takes it up
   */
  async update(
    group: ParameterGroup,
    shard: Shard,
    settings: UpdateSettings,
    onStart?: () => void,
  ): Promise<void> {
    const store = this.#store;
    const { options, step, learningRate, gradScale, assertChange } = settings;
    const decay = { decay: group.decay };
    const job: ShardUpdate = {
      length: shard.length,
      param: store.location(shard, 'param'),
      ...(store.dtype === 'bfloat16' ? { masterLo: store.location(shard, 'master_lo') } : {}),
      grad: store.location(shard, 'grad'),
      expAvg: store.location(shard, 'exp_avg'),
      expAvgSq: store.location(shard, 'exp_avg_sq'),
      scalars: adamwScalars(options, decay, step, learningRate, gradScale),
      countChanges: assertChange,
    };
    const result = await this.#pool.update(job, undefined, onStart);
    this.#tiers.countWorkerIo(result.nvmeReadBytes, result.nvmeWrittenBytes);
    this.#changedCount += result.changedCount ?? 0;
  }

  /**
   * All updates of a step are done.
   *
   * @throws WEIGHTS_UNCHANGED when `assertChange` was set and no weight moved
   */
  conclude(settings: UpdateSettings): void {
    const changedCount = this.#changedCount;
    this.#changedCount = 0;
    if (!settings.assertChange || changedCount > 0) return;
    throw new SpillwayError(
      'WEIGHTS_UNCHANGED',
      `no trainable weight changed in step ${settings.step}; the loss may not depend on them, or learning_rate may be too small for float32`,
      { step: settings.step, learningRate: settings.learningRate },
    );
  }
}

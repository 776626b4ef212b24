/**
 * @file Hands shards to the optimizer pool and fences the blocks that read them.
 *
 * An update of a step covers every trainable shard once. A block whose parameters are being
 * updated is fenced: whoever reads them waits. At most one step's update is outstanding.
 */
import { SpillwayError } from '../../core/errors.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import { adamwScalars, type AdamwOptions } from '../optim/adamw-options.js';
import type { OptimizerPool } from '../optim/optimizer-pool.js';
import type { ShardUpdate } from '../optim/shard-update.js';
import type { ParamName } from '../model/block.js';
import type { ParameterGroup } from '../plan/parameter-layout.js';
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

export class UpdateSweep {
  readonly #tiers: TierManager;
  readonly #store: ParameterStore;
  readonly #pool: OptimizerPool;
  /** The running update of each group, by group index. */
  readonly #fences = new Map<number, Promise<void>>();
  #changedCount = 0;

  constructor(tiers: TierManager, store: ParameterStore, pool: OptimizerPool) {
    this.#tiers = tiers;
    this.#store = store;
    this.#pool = pool;
  }

  /** Starts the update of `groups`; their fences stand until it is done. */
  start(groups: readonly ParameterGroup[], settings: UpdateSettings): void {
    for (const group of groups) {
      const running = this.#updateGroup(group, settings);
      running.catch(() => undefined); // Reported by `settle` and by whoever waits at the fence.
      this.#fences.set(group.index, running);
    }
  }

  /** Waits until no update of these parameters runs. @throws what the update threw */
  async pass(names: readonly ParamName[]): Promise<void> {
    const groups = new Set(names.map((name) => this.#store.address(name).group));
    for (const group of groups) await this.#fences.get(group);
  }

  /**
   * Waits for all updates that were started.
   *
   * @throws the first failure; WEIGHTS_UNCHANGED when `assertChange` was set and no weight moved
   */
  async settle(settings: UpdateSettings): Promise<void> {
    const started = [...this.#fences];
    const results = await Promise.allSettled(started.map(([, running]) => running));
    for (const [group, running] of started) {
      if (this.#fences.get(group) === running) this.#fences.delete(group);
    }
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    if (settings.assertChange && this.#changedCount === 0) {
      throw new SpillwayError(
        'WEIGHTS_UNCHANGED',
        `no trainable weight changed in step ${settings.step}; the loss may not depend on them, or learning_rate may be too small for float32`,
        { step: settings.step, learningRate: settings.learningRate },
      );
    }
    this.#changedCount = 0;
  }

  async #updateGroup(group: ParameterGroup, settings: UpdateSettings): Promise<void> {
    const scalars = adamwScalars(
      settings.options,
      { decay: group.decay },
      settings.step,
      settings.learningRate,
      settings.gradScale,
    );
    const store = this.#store;
    const jobs = group.shards.map(async (shard) => {
      const job: ShardUpdate = {
        length: shard.length,
        param: store.location(shard, 'param'),
        ...(store.dtype === 'bfloat16' ? { masterLo: store.location(shard, 'master_lo') } : {}),
        grad: store.location(shard, 'grad'),
        expAvg: store.location(shard, 'exp_avg'),
        expAvgSq: store.location(shard, 'exp_avg_sq'),
        scalars,
        countChanges: settings.assertChange,
      };
      const result = await this.#pool.update(job);
      this.#tiers.countWorkerIo(result.nvmeReadBytes, result.nvmeWrittenBytes);
      this.#changedCount += result.changedCount ?? 0;
    });
    // Every job is over before the fence falls, so that no worker writes behind a reader's back.
    const results = await Promise.allSettled(jobs);
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }
}

/**
 * @file Hands shards to the optimizer pool, and counts what an update moves and changes.
 */
import { SpillwayError, assert } from '../../core/errors.js';
import { settleAll } from '../../core/settle-all.js';
import { elementBytes, type StateName } from '../../core/types.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import type { AdamwScalars } from '../../tiers/native/native-binding.js';
import type { StateLocation } from '../../tiers/state-location.js';
import { adamwScalars, type AdamwOptions } from '../optim/adamw-options.js';
import type { OptimizerPool } from '../optim/optimizer-pool.js';
import type { ShardUpdate } from '../optim/shard-update.js';
import type { ParameterGroup, Shard } from '../plan/parameter-layout.js';
import { stateType } from '../plan/placement.js';
import type { ParameterStore } from './parameter-store.js';
import type { TableUpdates } from './table-updates.js';

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
  readonly #tables: TableUpdates;
  readonly #pool: OptimizerPool;
  #changedCount = 0;

  constructor(
    tiers: TierManager,
    store: ParameterStore,
    tables: TableUpdates,
    pool: OptimizerPool,
  ) {
    this.#tiers = tiers;
    this.#store = store;
    this.#tables = tables;
    this.#pool = pool;
  }

  /** All gradients of a step are at home: tables may be read as its update will leave them. */
  expect(settings: UpdateSettings): void {
    this.#tables.expect(settings.step, (group) => scalarsOf(group, settings));
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
    const pieces = this.#tables.piecesOf(shard);
    if (pieces === undefined) {
      await this.#run(group, shard, settings, onStart);
      return;
    }
    await settleAll(
      pieces.map((piece) =>
        this.#tables.update(piece, settings.step, (taken) =>
          this.#run(
            group,
            shard,
            settings,
            () => {
              taken();
              if (piece.start === 0) onStart?.();
            },
            piece,
          ),
        ),
      ),
    );
  }

  /** @param range elements of the shard, whose states are in memory then; default: all */
  async #run(
    group: ParameterGroup,
    shard: Shard,
    settings: UpdateSettings,
    onStart: (() => void) | undefined,
    range?: { readonly start: number; readonly length: number },
  ): Promise<void> {
    const store = this.#store;
    const location = (state: StateName): StateLocation => {
      const whole = store.location(shard, state);
      if (range === undefined) return whole;
      assert(whole.kind === 'memory', 'only what is in memory is updated in ranges');
      const bytesPer = elementBytes(stateType(state, store.dtype));
      const { start, length } = range;
      return {
        ...whole,
        bytes: whole.bytes.subarray(start * bytesPer, (start + length) * bytesPer),
      };
    };
    const job: ShardUpdate = {
      length: range?.length ?? shard.length,
      param: location('param'),
      ...(store.dtype === 'bfloat16' ? { masterLo: location('master_lo') } : {}),
      grad: location('grad'),
      expAvg: location('exp_avg'),
      expAvgSq: location('exp_avg_sq'),
      scalars: scalarsOf(group, settings),
      countChanges: settings.assertChange,
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

function scalarsOf({ decay }: ParameterGroup, settings: UpdateSettings): AdamwScalars {
  const { options, step, learningRate, gradScale } = settings;
  return adamwScalars(options, { decay }, step, learningRate, gradScale);
}

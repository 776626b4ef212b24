/**
 * @file `spillway plan`: what a run would hold where, from its configuration and a config.json.
 *
 * Reads neither weights nor data, and reserves nothing. Rows are taken to be as long as they may be,
 * so that a run holds at most what is said here.
 */
import type { Logger } from '../../core/logger.js';
import type { Tier } from '../../core/types.js';
import { readModelDefinition } from '../checkpoint/read-model-definition.js';
import type { TrainConfig } from '../config/train-config.js';
import { emptyBatch } from '../data/example-batch.js';
import { planTraining } from '../engine/plan-training.js';
import { homeShares, type TierShares } from '../plan/home-shares.js';
import type { MicroBatchOrder } from '../plan/placement.js';
import { stateBytesOf } from '../plan/parameter-layout.js';
import { engineOptionsOf, largestBatchSize } from './engine-options-of.js';

/** What `spillway plan --json` prints; keys are stable. Bytes throughout. */
export interface PlanReport {
  readonly parameters: number;
  /** Of weights, gradients and AdamW states. */
  readonly state_bytes: number;
  readonly order: MicroBatchOrder;
  /** Upper bounds of what the run holds. */
  readonly peak_bytes: Readonly<Record<Tier, number>>;
  readonly budget_bytes: Readonly<Record<Tier, number>>;
  /** The smallest budgets that work. */
  readonly minimum_budgets: Readonly<Record<Tier, number>>;
  /** Share of each state's elements per tier. */
  readonly homes: Readonly<Record<'param' | 'grad' | 'optimizer', TierShares>>;
}

/** The report, and the largest micro-batch that it is for. */
export interface PlannedRun {
  readonly report: PlanReport;
  readonly batchSize: number;
  /** Tokens per row: `max_length`, or the model's positions where these are fewer. */
  readonly length: number;
}

/**
 * Plans a run.
 *
 * @throws BUDGET_TOO_SMALL with the smallest budgets that work; MODEL_NOT_FOUND,
 *   MODEL_CONFIG_INVALID, MODEL_UNSUPPORTED, CONFIG_INVALID, DEVICE_UNAVAILABLE
 */
export async function planReport(config: TrainConfig, logger: Logger): Promise<PlannedRun> {
  const { modelNameOrPath, strictConfig, packing } = config;
  const model = await readModelDefinition(modelNameOrPath, { strictConfig, logger });
  const length = Math.min(config.maxLength, model.maxPositions);
  const batchSize = largestBatchSize(config);
  const { layout, budgets, plan } = await planTraining({
    ...engineOptionsOf(config),
    model,
    // How long documents are only data tell; short ones are within every model's limits.
    exampleBatch: emptyBatch({ batchSize, length, packed: packing, longestDocument: 2 }),
    logger,
  });
  const lengths = layout.groups.map((group) => group.length);
  return {
    report: {
      parameters: layout.parameterCount,
      state_bytes: stateBytesOf(layout),
      order: plan.order,
      peak_bytes: plan.peakBytes,
      budget_bytes: budgets,
      minimum_budgets: plan.minimumBytes,
      homes: homeShares(plan.homes, lengths),
    },
    batchSize,
    length,
  };
}

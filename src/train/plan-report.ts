/**
 * @file `spillway plan`: what a run would hold where, from its configuration and a config.json.
 *
 * Reads neither weights nor data, and reserves nothing. Rows are taken to be as long as they may be,
 * so that a run holds at most what is said here.
 */
import type { Logger } from '../../core/logger.js';
import { LINKS, type Lane, type Link, type Tier } from '../../core/types.js';
import { readModelDefinition } from '../checkpoint/read-model-definition.js';
import type { TrainConfig } from '../config/train-config.js';
import { emptyBatch } from '../data/example-batch.js';
import { knownCosts } from '../engine/calibrate/cost-store.js';
import {
  defaultCosts,
  forecastTraining,
  type TrainingForecast,
} from '../engine/forecast-training.js';
import { homeShares, type TierShares } from '../plan/home-shares.js';
import type { MicroBatchOrder } from '../plan/placement.js';
import { stateBytesOf } from '../plan/parameter-layout.js';
import type { Action, Phase, StepPlan } from '../plan/step-plan.js';
import { engineOptionsOf, evaluationBatchSize, largestBatchSize } from './engine-options-of.js';
import { throttledCosts } from './throttled-costs.js';

/** Bytes per link, under the links' names. */
type LinkBytes = Readonly<Record<Link, number>>;
type TierBytes = Readonly<Record<Tier, number>>;

/** What `spillway plan --json` prints; keys are stable. Bytes throughout. */
export interface PlanReport {
  readonly parameters: number;
  /** Of weights, gradients and AdamW states. */
  readonly state_bytes: number;
  readonly order: MicroBatchOrder;
  /** Over the largest micro-batches; exact, but on a device that only a run tells about: there no
   * more than this. */
  readonly peak_bytes: TierBytes;
  /** By phase of a step, while it loads and saves, and where it evaluates; absent where only a run
   * tells. */
  readonly peak_bytes_by_phase?: Readonly<Record<Phase | 'load' | 'save', TierBytes>> & {
    readonly evaluation?: TierBytes;
  };
  readonly budget_bytes: TierBytes;
  /** The smallest budgets that work. */
  readonly minimum_budgets: TierBytes;
  /** Share of each state's elements per tier. */
  readonly homes: Readonly<Record<'param' | 'grad' | 'optimizer', TierShares>>;
  /** Of a step over the largest micro-batches. */
  readonly bytes_per_step: LinkBytes;
  readonly bytes_per_step_by_phase: Readonly<Record<Phase, LinkBytes>>;
  /** Of all operations of a kind, under the `action` that a trace gives them; those that move bytes. */
  readonly bytes_per_step_by_action: Readonly<Partial<Record<Action['kind'], LinkBytes>>>;
  /** Seconds in which each lane is busy, and those that a steady step takes. */
  readonly seconds_per_step: Readonly<Record<Lane | 'total', number>>;
  /** The lane that is busy longest. */
  readonly limited_by: Lane;
  /** Share of the update that runs beside compute. */
  readonly hidden_update_share: number;
  /** Terabytes (10^12 bytes) written to NVMe in 1,000 steps. */
  readonly nvme_tb_written_per_1000_steps: number;
  /** Where a drive's endurance was given. */
  readonly drive_life?: { readonly steps: number; readonly days: number };
  /** What a quarter more of a budget would save per step. */
  readonly larger_budgets: Readonly<Record<'device' | 'host', BudgetGain>>;
  /** Whether costs are this machine's, by `spillway tune`, and which are not. */
  readonly costs: { readonly measured: boolean; readonly defaults: readonly string[] };
}

interface BudgetGain {
  readonly budget_bytes: number;
  readonly bytes_saved_per_step: LinkBytes;
}

/** The report, and the largest micro-batch of a step. */
export interface PlannedRun {
  readonly report: PlanReport;
  readonly batchSize: number;
  /** Tokens per row: `max_length`, or the model's positions where these are fewer. */
  readonly length: number;
}

/** What is reported beside the configuration. */
export interface PlanReportOptions {
  /** Terabytes that may be written to the drive, by its data sheet. */
  readonly driveTerabytes?: number;
}

const SECONDS_PER_DAY = 86_400;

/**
 * Plans a run.
 *
 * @throws BUDGET_TOO_SMALL with the smallest budgets that work; MODEL_NOT_FOUND,
 *   MODEL_CONFIG_INVALID, MODEL_UNSUPPORTED, CONFIG_INVALID, DEVICE_UNAVAILABLE
 */
export async function planReport(
  config: TrainConfig,
  logger: Logger,
  { driveTerabytes }: PlanReportOptions = {},
): Promise<PlannedRun> {
  const { modelNameOrPath, strictConfig, packing } = config;
  const model = await readModelDefinition(modelNameOrPath, { strictConfig, logger });
  const length = Math.min(config.maxLength, model.maxPositions);
  const batchSize = config.perDeviceTrainBatchSize;
  // How long documents are only data tell; short ones are within every model's limits.
  const batchOf = (rows: number) =>
    emptyBatch({ batchSize: rows, length, packed: packing, longestDocument: 2 });
  const evaluation = evaluationBatchSize(config);
  const options = engineOptionsOf(config);
  const { throttles } = options.execution;
  const forecast = await forecastTraining(
    {
      ...options,
      model,
      exampleBatch: batchOf(largestBatchSize(config)),
      ...(evaluation !== undefined && {
        stepBatch: batchOf(batchSize),
        evaluationBatch: batchOf(evaluation),
      }),
      logger,
    },
    async (device, workers) => {
      const keys = { device, workers, dtype: config.dtype, nvmePaths: config.nvmePath };
      const { costs, missing } = await knownCosts(keys, defaultCosts(device));
      return { costs: throttledCosts(costs, throttles), missing };
    },
  );
  const { layout, budgets, plan, timeline } = forecast;
  const lengths = layout.groups.map((group) => group.length);
  const written = forecast.bytesPerStep.nvme_write;
  return {
    report: {
      parameters: layout.parameterCount,
      state_bytes: stateBytesOf(layout),
      order: plan.order,
      ...peaksOf(forecast),
      budget_bytes: budgets,
      minimum_budgets: plan.minimumBytes,
      homes: homeShares(plan.homes, lengths),
      bytes_per_step: forecast.bytesPerStep,
      bytes_per_step_by_phase: forecast.bytesPerPhase,
      bytes_per_step_by_action: bytesPerAction(forecast.step),
      seconds_per_step: { ...forecast.secondsPerLane, total: timeline.stepSeconds },
      limited_by: timeline.limitedBy,
      hidden_update_share: timeline.hiddenUpdateShare ?? 1,
      nvme_tb_written_per_1000_steps: (written * 1000) / 1e12,
      ...(driveTerabytes === undefined || written === 0
        ? {}
        : { drive_life: driveLife((driveTerabytes * 1e12) / written, timeline.stepSeconds) }),
      larger_budgets: gains(forecast),
      costs: {
        measured: forecast.unmeasured.length === 0,
        defaults: forecast.unmeasured,
      },
    },
    batchSize,
    length,
  };
}

function bytesPerAction({ operations }: StepPlan): PlanReport['bytes_per_step_by_action'] {
  const sums: Partial<Record<Action['kind'], Record<Link, number>>> = {};
  for (const { action, bytes } of operations) {
    for (const link of LINKS) {
      const moved = bytes[link] ?? 0;
      if (moved === 0) continue;
      const sum = (sums[action.kind] ??= { upload: 0, download: 0, nvme_read: 0, nvme_write: 0 });
      sum[link] += moved;
    }
  }
  return sums;
}

function driveLife(steps: number, stepSeconds: number): { steps: number; days: number } {
  return { steps: Math.floor(steps), days: (steps * stepSeconds) / SECONDS_PER_DAY };
}

function peaksOf({
  plan,
  devicePeaks,
  evaluationPeak,
}: TrainingForecast): Pick<PlanReport, 'peak_bytes' | 'peak_bytes_by_phase'> {
  if (devicePeaks === undefined) return { peak_bytes: plan.peakBytes };
  const { host, nvme } = plan.peakBytes;
  // What host and NVMe hold is leased for the whole run.
  const peak = (device: number): TierBytes => ({ device, host, nvme });
  const { forward, backward, update } = devicePeaks;
  return {
    peak_bytes: peak(Math.max(forward, backward, update, evaluationPeak ?? 0)),
    peak_bytes_by_phase: {
      // Beside steps and evaluations there is what stays for the whole run.
      load: peak(update),
      forward: peak(forward),
      backward: peak(backward),
      update: peak(update),
      ...(evaluationPeak !== undefined && { evaluation: peak(evaluationPeak) }),
      save: peak(update),
    },
  };
}

function gains({ largerBudgets }: TrainingForecast): PlanReport['larger_budgets'] {
  const gain = (tier: 'device' | 'host'): BudgetGain => {
    const { budgetBytes, savedBytes } = largerBudgets[tier];
    return { budget_bytes: budgetBytes, bytes_saved_per_step: savedBytes };
  };
  return { device: gain('device'), host: gain('host') };
}

/**
 * @file What a run tells at its start and at its end, in numbers.
 */
import { TIERS } from '../../core/types.js';
import type { Engine } from '../engine/engine.js';
import { HOMED_STATES, homeShares } from '../plan/home-shares.js';
import type { RunSummary } from './run-reporter.js';
import type { StepTotals } from './step-accounts.js';
import type { TrainingState } from './training-state.js';

/** Share of a state's elements at each tier, e.g. `param host 60 % + nvme 40 %`. */
export function describeHomes(engine: Engine): string {
  const shares = homeShares(engine.plan.homes, engine.groupLengths);
  return HOMED_STATES.map((state) => {
    const parts = TIERS.filter((tier) => shares[state][tier] > 0).map(
      (tier) => `${tier} ${Math.round(shares[state][tier] * 100)} %`,
    );
    return `${state} ${parts.join(' + ')}`;
  }).join(', ');
}

/**
 * The content of summary.json. Steps before a resumed run count in what `state` holds; times, peaks
 * and bytes are this process's.
 *
 * @param seconds wall time of the run
 * @param steps what steps moved and were to move; undefined when this process took none
 * @param bestFolder the best checkpoint, where evaluations and checkpoints made one
 */
export function summaryOf(
  engine: Engine,
  state: TrainingState,
  seconds: number,
  steps: StepTotals | undefined,
  bestFolder: string | undefined,
): RunSummary {
  const evaluation = state.history.findLast((record) => 'eval_loss' in record);
  return {
    train_loss: state.trainLoss,
    global_step: state.step,
    num_tokens: state.tokenCount,
    train_runtime: seconds,
    ...(evaluation === undefined ? {} : { eval_loss: evaluation.eval_loss }),
    ...(state.best === undefined ? {} : { best_metric: state.best.metric }),
    ...(bestFolder === undefined ? {} : { best_model_checkpoint: bestFolder }),
    peak_bytes: engine.peakBytes,
    budget_bytes: engine.budgetBytes,
    bytes_moved: engine.bytesMoved,
    ...(steps === undefined ? {} : { bytes_moved_per_step: steps.moved, planned: steps.planned }),
    cpu_fallbacks: Object.values(engine.cpuFallbacks).reduce((sum, count) => sum + count, 0),
    peak_rss_bytes: process.resourceUsage().maxRSS * 1024,
  };
}

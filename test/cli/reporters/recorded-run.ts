/**
 * @file Events of a short run, in the order in which the trainer reports them.
 */
import type { MetricsRecord } from '../../../src/train/metrics-file.js';
import type {
  EvaluationRecord,
  RunReporter,
  RunStart,
  RunSummary,
  StepProgress,
} from '../../../src/train/run-reporter.js';

const GIB = 2 ** 30;
export const BUDGET = { device: 48 * GIB, host: 64 * GIB, nvme: 9 * GIB };
export const TOTAL_STEPS = 6;

export const START: RunStart = {
  parameterCount: 1_234_567,
  stateBytes: 16 * 1_234_567,
  homes: 'param host 60 % + nvme 40 %, grad host 100 %, optimizer nvme 100 %',
  budgetBytes: BUDGET,
  rows: 1200,
  tokens: 34_567,
  evalRows: 20,
  totalSteps: TOTAL_STEPS,
  firstStep: 0,
};

/** Step `step` of 500 tokens in half a second. */
export function stepOf(step: number): StepProgress {
  return {
    step,
    totalSteps: TOTAL_STEPS,
    loss: 5 - step / 4,
    tokens: 500,
    seconds: 0.5,
    heldBytes: { device: 45 * GIB, host: 40 * GIB, nvme: 0.4 * GIB },
    budgetBytes: BUDGET,
  };
}

export function recordOf(step: number): MetricsRecord {
  return {
    step,
    loss: 5 - step / 4,
    grad_norm: 1.25,
    learning_rate: 5e-4,
    epoch: step / 10,
    num_tokens: 500 * step,
    'spillway/step_seconds': 0.5,
  };
}

export const EVALUATION: EvaluationRecord = {
  step: 4,
  epoch: 0.4,
  eval_loss: 3.5,
  eval_perplexity: Math.exp(3.5),
  eval_runtime: 1.5,
  eval_samples_per_second: 13.3,
};

export const SUMMARY: RunSummary = {
  train_loss: 4.125,
  global_step: TOTAL_STEPS,
  num_tokens: 3000,
  train_runtime: 75,
  eval_loss: 3.5,
  peak_bytes: { device: 46 * GIB, host: 41 * GIB, nvme: 0.5 * GIB },
  budget_bytes: BUDGET,
  bytes_moved: { upload: 12 * GIB, download: 6 * GIB, nvme_read: 3 * GIB, nvme_write: 0 },
  bytes_moved_per_step: { upload: 2 * GIB, download: GIB, nvme_read: 0.5 * GIB, nvme_write: 0 },
  planned: {
    bytes_per_step: { upload: 2 * GIB, download: GIB, nvme_read: 0.5 * GIB, nvme_write: 0 },
    peak_bytes: { device: 46 * GIB, host: 41 * GIB, nvme: 0.5 * GIB },
  },
  cpu_fallbacks: 0,
  peak_rss_bytes: 1.5 * GIB,
};

/** Reports the whole run; `between` is called after each event. */
export function report(reporter: RunReporter, between: () => void = () => undefined): void {
  const events: (() => void)[] = [
    ...[0, 50, 100].map((bytesDone) => () => {
      reporter.preparing({ split: 'train', rows: 12 * bytesDone, bytesDone, bytesTotal: 100 });
    }),
    () => reporter.started(START),
  ];
  for (let step = 1; step <= TOTAL_STEPS; step++) {
    events.push(() => reporter.stepped(stepOf(step)));
    if (step % 2 === 0) events.push(() => reporter.logged(recordOf(step)));
    if (step === 4) {
      events.push(() => reporter.evaluating(0, 5));
      events.push(() => reporter.evaluating(5, 5));
      events.push(() => reporter.evaluated(EVALUATION));
      events.push(() => reporter.saved('out/checkpoint-4', 4));
    }
  }
  events.push(() => reporter.finished(SUMMARY, 'out'));
  for (const event of events) {
    event();
    between();
  }
}

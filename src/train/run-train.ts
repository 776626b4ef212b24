/**
 * @file `spillway train`: from a configuration to a fine-tuned Hugging Face folder.
 *
 * Everything that can be refused is refused before anything is written into `output_dir`.
 */
import { join } from 'node:path';
import { SpillwayError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import { writeDurableJson } from '../checkpoint/durable-file.js';
import { loadPretrained } from '../checkpoint/load-pretrained.js';
import type { TrainConfig } from '../config/train-config.js';
import type { FileLock } from '../../tiers/nvme/file-lock.js';
import type { Engine } from '../engine/engine.js';
import { CheckpointWriter } from './checkpoint-writer.js';
import { createEngine } from './create-engine.js';
import { bestFolderOf, isFinished, saveFinalModel } from './final-model.js';
import { MetricsFile } from './metrics-file.js';
import { lockOutput } from './output-lock.js';
import { planRun, type RunPlan } from './plan-run.js';
import { prepareOutput } from './prepare-output.js';
import type { RunReporter } from './run-reporter.js';
import { describeHomes, summaryOf } from './run-summary.js';
import { StepAccounts } from './step-accounts.js';
import { checkTracePath } from './trace/trace-file.js';
import { TraceRecorder } from './trace/trace-recorder.js';
import { tracedCosts } from './trace/traced-costs.js';
import { TrainingLoop, type LoopParts } from './training-loop.js';
import { withChatTemplate } from './with-chat-template.js';

/** What a run works with besides its configuration. */
export interface RunOptions {
  /** Warnings and notes. */
  readonly logger: Logger;
  /** Everything that happens. */
  readonly reporter: RunReporter;
  /**
   * Ends the run after the step that is under way; a checkpoint is saved, the final model is not.
   * Before the first step the run ends with the signal's reason and nothing is written.
   */
  readonly signal?: AbortSignal;
}

/**
 * Trains as `config` says.
 *
 * @throws every code of docs/ERRORS.md; what was saved before is unharmed. The signal's reason when
 *   it comes before the first step
 */
export async function runTrain(config: TrainConfig, options: RunOptions): Promise<void> {
  const folder = required(config.modelNameOrPath, 'model_name_or_path');
  if (config.dataFiles.length === 0) required(undefined, 'data_files');
  const { logger, signal } = options;
  if (config.trace !== undefined) checkTracePath(config.trace, config.outputDir);
  const model = await loadPretrained(folder, { strictConfig: config.strictConfig, logger });
  let lock: FileLock | undefined;
  try {
    lock = lockOutput(config.outputDir, logger);
    const base = await withChatTemplate(model, config.chatTemplatePath);
    const plan = await planRun(config, base, options);
    try {
      signal?.throwIfAborted();
      if (plan.checkpoint !== undefined && (await isFinished(plan))) {
        logger.info(
          `all ${plan.sampler.totalSteps} steps are done and the final model is in ${config.outputDir}; nothing is left to do`,
        );
        return;
      }
      await prepareOutput(config.outputDir);
      lock ??= lockOutput(config.outputDir, logger);
      await train(plan, options);
    } finally {
      await plan.close();
    }
  } finally {
    lock?.release();
    await model.close();
  }
}

function required(value: string | undefined, key: string): string {
  if (value === undefined || value === '') {
    throw new SpillwayError(
      'CONFIG_INVALID',
      `${key} is missing; give it in the file or as a flag`,
    );
  }
  return value;
}

async function train(plan: RunPlan, options: RunOptions): Promise<void> {
  const { trace: path, traceSteps: steps } = plan.config;
  if (path === undefined) return trainTraced(plan, options, undefined);
  const trace = new TraceRecorder({ path, steps, logger: options.logger });
  try {
    await trainTraced(plan, options, trace);
  } finally {
    trace.close();
  }
}

async function trainTraced(
  plan: RunPlan,
  options: RunOptions,
  trace: TraceRecorder | undefined,
): Promise<void> {
  const started = performance.now();
  const { config, state } = plan;
  const { reporter, signal } = options;
  const execution = trace === undefined ? {} : { onSpan: trace.onSpan };
  const engine = await createEngine(plan, options.logger, execution);
  try {
    signal?.throwIfAborted();
    reportStart(engine, plan, reporter);
    trace?.begin(engine, await tracedCosts(config, engine, options.logger));
    const accounts = new StepAccounts(engine);
    const interruptedIn = await runLoop(engine, plan, options, { trace, accounts });
    if (interruptedIn !== undefined) {
      reporter.interrupted(interruptedIn, state.step);
      return;
    }
    const totals = await accounts.totals();
    await saveFinalModel(engine, plan);
    const seconds = (performance.now() - started) / 1000;
    const summary = summaryOf(engine, state, seconds, totals, bestFolderOf(plan));
    await writeDurableJson(join(config.outputDir, 'summary.json'), summary);
    reporter.finished(summary, config.outputDir);
  } finally {
    trace?.close(); // It asks the engine what it predicts.
    await engine.close();
  }
}

function reportStart(engine: Engine, plan: RunPlan, reporter: RunReporter): void {
  const { dataset, evalDataset, sampler, state } = plan;
  reporter.started({
    parameterCount: engine.parameterCount,
    stateBytes: engine.stateBytes,
    homes: describeHomes(engine),
    budgetBytes: engine.budgetBytes,
    rows: dataset.length,
    tokens: dataset.tokenCount,
    evalRows: evalDataset?.length ?? 0,
    totalSteps: sampler.totalSteps,
    firstStep: state.step,
  });
}

/** @returns the checkpoint that an interrupted run leaves */
async function runLoop(
  engine: Engine,
  plan: RunPlan,
  options: RunOptions,
  watchers: Pick<LoopParts, 'trace' | 'accounts'>,
): Promise<string | undefined> {
  const { config, state } = plan;
  const { reporter, signal } = options;
  const metrics = await MetricsFile.create(join(config.outputDir, 'metrics.jsonl'), state.history);
  try {
    const checkpoints = new CheckpointWriter(engine, plan.checkpointFacts, reporter);
    const parts = { ...plan, ...watchers, engine, metrics, checkpoints, reporter, signal };
    const loop = new TrainingLoop(parts);
    const result = await loop.run();
    return result?.interruptedIn;
  } finally {
    await metrics.close();
  }
}

/**
 * @file `spillway evaluate`: loss and perplexity of a model on data files, with nothing that training
 * needs in memory.
 */
import { SpillwayError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import type { Link, Tier } from '../../core/types.js';
import { loadPretrained, type PretrainedModel } from '../checkpoint/load-pretrained.js';
import type { TrainConfig } from '../config/train-config.js';
import { exampleBatchOf } from '../data/example-batch.js';
import { loadDataset, loadDatasets } from '../data/load-dataset.js';
import type { TokenDataset } from '../data/token-dataset.js';
import { InferenceEngine } from '../engine/inference-engine.js';
import { dataOptionsOf } from './data-options.js';
import { resourceOptionsOf } from './engine-options-of.js';
import { evaluateDataset, type Evaluation, type EvaluationOptions } from './evaluate-dataset.js';

/** Rows per micro-batch where the configuration names none; transformers' default. */
const BATCH_SIZE = 8;

/** Time between two notes of how far it is. */
const NOTE_MS = 5000;

/** What an evaluation finds; what `--json` prints, in its spelling. */
export interface EvaluateReport {
  readonly eval_loss: number;
  /** exp(eval_loss) */
  readonly eval_perplexity: number;
  /** Sequences; packed ones hold several rows. */
  readonly eval_samples: number;
  /** Loss terms. */
  readonly eval_tokens: number;
  /** In seconds, loading excluded. */
  readonly eval_runtime: number;
  readonly parameters: number;
  readonly peak_bytes: Readonly<Record<Tier, number>>;
  readonly budget_bytes: Readonly<Record<Tier, number>>;
  readonly bytes_moved: Readonly<Record<Link, number>>;
}

/** What a run works with besides its configuration. */
export interface RunEvaluateOptions {
  readonly logger: Logger;
  /** Ends it between micro-batches. */
  readonly signal?: AbortSignal;
}

/**
 * Evaluates as `config` says: on `eval_files`, else on the rows of `eval_split`, else on all of
 * `data_files`.
 *
 * @throws what loading model and data and `InferenceEngine.create` throw; the signal's reason
 */
export async function runEvaluate(
  config: TrainConfig,
  options: RunEvaluateOptions,
): Promise<EvaluateReport> {
  const { logger, signal } = options;
  const { strictConfig, modelNameOrPath } = config;
  const model = await loadPretrained(modelNameOrPath, { strictConfig, logger });
  try {
    const maxLength = Math.min(config.maxLength, model.maxPositions);
    const dataset = await readRows(config, model, maxLength, options);
    signal?.throwIfAborted();
    const batchSize = config.perDeviceEvalBatchSize ?? BATCH_SIZE;
    const lengthLimits = [maxLength, ...model.sequenceLimits];
    const engine = await createEngine(config, model, logger, dataset, { batchSize, lengthLimits });
    try {
      const onProgress = progressNotes(logger, dataset.length);
      const how = { batchSize, lengthLimits, signal, onProgress };
      const result = await evaluateDataset(engine, dataset, how);
      if (result === undefined) throw signal?.reason;
      return reportOf(engine, dataset, result);
    } finally {
      await engine.close();
    }
  } finally {
    await model.close();
  }
}

function createEngine(
  config: TrainConfig,
  model: PretrainedModel,
  logger: Logger,
  dataset: TokenDataset,
  { batchSize, lengthLimits }: Pick<EvaluationOptions, 'batchSize' | 'lengthLimits'>,
): Promise<InferenceEngine> {
  return InferenceEngine.create({
    model,
    exampleBatch: exampleBatchOf([dataset], Math.min(batchSize, dataset.length), lengthLimits),
    ...resourceOptionsOf(config),
    logger,
  });
}

async function readRows(
  config: TrainConfig,
  model: PretrainedModel,
  maxLength: number,
  { logger, signal }: RunEvaluateOptions,
): Promise<TokenDataset> {
  const { dataFiles, evalFiles, evalSplit } = config;
  const how = { ...dataOptionsOf(config, model, maxLength), logger, signal };
  if (evalFiles !== undefined) return loadDataset({ ...how, files: evalFiles, split: 'eval' });
  if (dataFiles.length === 0) {
    throw new SpillwayError(
      'CONFIG_INVALID',
      'there is nothing to evaluate; give eval_files or data_files',
      { key: 'eval_files' },
    );
  }
  if (evalSplit === undefined) return loadDataset({ ...how, files: dataFiles });
  const { seed } = config;
  const { eval: rows } = await loadDatasets({ ...how, files: dataFiles, evalSplit, seed });
  return rows!; // A split always gives both parts.
}

/** Notes now and then how many rows are done. */
function progressNotes(logger: Logger, total: number): (rows: number) => void {
  let last = performance.now();
  return (rows) => {
    if (rows === total || performance.now() - last < NOTE_MS) return;
    last = performance.now();
    logger.info(`evaluated ${rows} of ${total} rows`);
  };
}

function reportOf(
  engine: InferenceEngine,
  dataset: TokenDataset,
  { loss, perplexity, terms, seconds }: Evaluation,
): EvaluateReport {
  return {
    eval_loss: loss,
    eval_perplexity: perplexity,
    eval_samples: dataset.length,
    eval_tokens: terms,
    eval_runtime: seconds,
    parameters: engine.parameterCount,
    peak_bytes: engine.peakBytes,
    budget_bytes: engine.budgetBytes,
    bytes_moved: engine.bytesMoved,
  };
}

/**
 * @file A `checkpoint-<step>` folder as a point from which training goes on.
 *
 * Beside weights and optimizer states it holds `trainer_state.json`, in Hugging Face's form, and
 * `spillway.json`: which run it belongs to, what must be the same to go on, and the sums that
 * metrics continue. Nothing in it depends on where states lived.
 */
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import * as z from 'zod';

import { SpillwayError, hasCode, isCoded } from '../../core/errors.js';
import { corrupt, readError } from './file-errors.js';
import { parseJsonObject } from './json-object.js';
import { listCheckpoints } from './list-checkpoints.js';

export const TRAINER_STATE_NAME = 'trainer_state.json';
export const RUN_STATE_NAME = 'spillway.json';

/** Version of spillway.json; 1 could not be resumed from. */
const FORMAT = 2;

const count = z.int().nonnegative();
const setting = z.union([z.string(), z.number(), z.boolean()]);

const runState = z.object({
  format: z.literal(FORMAT),
  /** Drawn at a fresh start and kept when it is resumed. */
  run: z.string().min(1),
  /** When it was saved: milliseconds since 1970. */
  saved_at: z.number(),
  /** Optimizer steps done. */
  step: count,
  /** Whether optimizer.safetensors is there. */
  has_optimizer: z.boolean(),
  /** What a run that goes on must have in common, under the names of keys. */
  identity: z.record(z.string(), setting),
  /** What it may change, and is told. */
  settings: z.record(z.string(), setting),
  /** The evaluation of this step was due and did not take place. */
  evaluation_due: z.boolean(),
  /** Tokens seen, padding excluded. */
  num_tokens: count,
  /** Sum of all steps' losses. */
  loss_sum: z.number(),
  /** Since the last line of metrics. */
  window: z.object({ loss_sum: z.number(), steps: count, seconds: z.number() }),
  /** The best evaluation among those whose weights were saved. */
  best_saved: z.object({ metric: z.number(), step: count }).nullable(),
});

const trainerState = z.looseObject({
  global_step: count,
  best_metric: z.number().nullable(),
  best_global_step: count.nullable(),
  best_model_checkpoint: z.string().nullable(),
  log_history: z.array(z.looseObject({ step: count })),
});

/** The content of spillway.json. */
export type RunState = z.infer<typeof runState>;

/** The fields of trainer_state.json that go on; others are there for readers. */
export type TrainerState = z.infer<typeof trainerState>;

/** A checkpoint whose two JSON files are read and checked; its tensors are not open. */
export interface TrainingCheckpoint {
  /** Absolute path. */
  readonly folder: string;
  readonly run: RunState;
  readonly trainer: TrainerState;
}

/**
 * Reads the checkpoint in `folder`.
 *
 * @throws CHECKPOINT_NOT_FOUND when it holds no training state, CHECKPOINT_MISMATCH when it was
 *   saved without optimizer states, CHECKPOINT_CORRUPT, IO_ERROR
 */
export async function openTrainingCheckpoint(folder: string): Promise<TrainingCheckpoint> {
  const path = resolve(folder);
  const run = await readRunState(path);
  if (run === undefined) {
    throw new SpillwayError(
      'CHECKPOINT_NOT_FOUND',
      `${path} holds no ${RUN_STATE_NAME}, so it is no checkpoint to resume from; name a checkpoint-<step> folder that Spillway saved`,
    );
  }
  if (!run.has_optimizer) {
    throw new SpillwayError(
      'CHECKPOINT_MISMATCH',
      `${path} was saved with save_only_model: it has no optimizer states to resume with; resume from another, or start from its weights as model_name_or_path`,
      { save_only_model: true },
    );
  }
  const statePath = join(path, TRAINER_STATE_NAME);
  const trainer = await readState(statePath, trainerState);
  if (trainer === undefined) throw corrupt(path, `it holds no ${TRAINER_STATE_NAME}`);
  if (trainer.global_step !== run.step) {
    throw corrupt(statePath, `its global_step is not the step of ${RUN_STATE_NAME}`, {
      global_step: trainer.global_step,
      step: run.step,
    });
  }
  return { folder: path, run, trainer };
}

/**
 * The run state in `folder`, or undefined when it has none.
 *
 * @throws CHECKPOINT_CORRUPT, IO_ERROR
 */
export function readRunState(folder: string): Promise<RunState | undefined> {
  return readState(join(folder, RUN_STATE_NAME), runState);
}

/** A checkpoint of an output folder that Spillway saved. */
export interface SavedCheckpoint {
  readonly step: number;
  /** Absolute path. */
  readonly folder: string;
  readonly run: RunState;
}

/**
 * Spillway's checkpoints in `outputDir`, oldest first: by the time they were saved, those of the run
 * that saved last by their steps and at the end. A clock that was set back does not matter within a
 * run. Half-written folders have other names; folders of other writers are left out.
 *
 * @param onBroken receives checkpoints that are left out since their run state cannot be read
 * @throws IO_ERROR, PATH_UNWRITABLE
 */
export async function savedCheckpoints(
  outputDir: string,
  onBroken: (error: Error) => void,
): Promise<SavedCheckpoint[]> {
  const saved: SavedCheckpoint[] = [];
  for (const { step, folder } of await listCheckpoints(outputDir)) {
    try {
      const run = await readRunState(folder);
      if (run !== undefined) saved.push({ step, folder, run });
    } catch (error) {
      if (!isCoded(error) || error.code !== 'CHECKPOINT_CORRUPT') throw error;
      onBroken(error);
    }
  }
  saved.sort((a, b) => a.run.saved_at - b.run.saved_at);
  const last = saved.at(-1)?.run.run;
  const others = saved.filter(({ run }) => run.run !== last);
  const own = saved.filter(({ run }) => run.run === last);
  return [...others, ...own.sort((a, b) => a.step - b.step)];
}

async function readState<T>(path: string, schema: z.ZodType<T>): Promise<T | undefined> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    const told = readError(path, error);
    if (hasCode(told, 'MODEL_NOT_FOUND')) return undefined;
    throw told;
  }
  const value = parseJsonObject(text, (fact, cause) => corrupt(path, `it ${fact}`, {}, cause));
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const where = issue === undefined || issue.path.length === 0 ? '' : ` at ${issue.path.join('.')}`;
  throw corrupt(path, `its content is not what Spillway writes${where}`);
}

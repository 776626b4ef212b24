/**
 * @file What a run left in its folder, checked: lines of metrics.jsonl, summary.json, config.json.
 *
 * A run that goes on, or was killed, has no summary yet and perhaps half a line.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { SpillwayError } from '../../core/errors.js';
import { errnoOf, exists } from '../checkpoint/file-errors.js';
import { readJsonl } from '../data/read-jsonl.js';

/** Bytes of a summary or configuration, and of one line; ours have some hundred. */
const MAX_BYTES = 2 ** 20;

/** JSON has no NaN or infinity; a run writes null. */
const number = z.number().nullable();
const bytes = z.number().nonnegative();
const links = z.object({ upload: bytes, download: bytes, nvme_read: bytes, nvme_write: bytes });
const tiers = z.object({ device: bytes, host: bytes, nvme: bytes });

const record = z.object({
  step: z.number(),
  loss: number.optional(),
  grad_norm: number.optional(),
  learning_rate: number.optional(),
  eval_loss: number.optional(),
  'spillway/step_seconds': number.optional(),
});

const summary = z.object({
  train_loss: number,
  global_step: z.number(),
  num_tokens: z.number(),
  train_runtime: z.number(),
  eval_loss: number.optional(),
  best_metric: number.optional(),
  best_model_checkpoint: z.string().optional(),
  peak_bytes: tiers,
  budget_bytes: tiers,
  bytes_moved: links,
  bytes_moved_per_step: links.optional(),
  planned: z.object({ bytes_per_step: links, peak_bytes: tiers }).optional(),
  cpu_fallbacks: z.number(),
  peak_rss_bytes: bytes,
});

const scalar = z.union([z.string(), z.number(), z.boolean()]);

/** One line of metrics.jsonl: a training step, or an evaluation. */
export type ReportedRecord = z.infer<typeof record>;

/** summary.json. */
export type ReportedSummary = z.infer<typeof summary>;

/** A run as its folder tells it. */
export interface ReportedRun {
  readonly records: readonly ReportedRecord[];
  readonly summary: ReportedSummary | undefined;
  /** Plain values of config.json: the model's sizes. */
  readonly model: Readonly<Record<string, string | number | boolean>>;
}

/**
 * Reads a run's folder.
 *
 * @throws RUN_NOT_FOUND when it is not there; RUN_CORRUPT for a file that no run wrote; DATA_INVALID,
 *   IO_ERROR
 */
export async function readRun(folder: string): Promise<ReportedRun> {
  await checkFolder(folder);
  const records = await readRecords(join(folder, 'metrics.jsonl'));
  const path = join(folder, 'summary.json');
  const found = await readJson(path);
  return {
    records,
    summary: found === undefined ? undefined : check(path, summary, found),
    model: scalarsOf(await readJson(join(folder, 'config.json'))),
  };
}

async function checkFolder(folder: string): Promise<void> {
  const isFolder = await stat(folder).then(
    (found) => found.isDirectory(),
    () => false,
  );
  if (isFolder) return;
  throw new SpillwayError('RUN_NOT_FOUND', `${folder} is no folder; give the output_dir of a run`);
}

async function readRecords(path: string): Promise<ReportedRecord[]> {
  if (!(await exists(path))) return [];
  const records: ReportedRecord[] = [];
  let broken: string | undefined;
  for await (const { place, text } of readJsonl(path, { maxLineBytes: MAX_BYTES })) {
    if (broken !== undefined) throw corrupt(broken, 'is no JSON');
    try {
      records.push(check(place, record, JSON.parse(text)));
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      // The last line of a run that is writing, or was killed, may be half a line.
      broken = place;
    }
  }
  return records;
}

async function readJson(path: string): Promise<unknown> {
  try {
    if ((await stat(path)).size > MAX_BYTES)
      throw corrupt(path, `is larger than ${MAX_BYTES} bytes`);
    return JSON.parse(await readFile(path, 'utf8'));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    if (error instanceof SyntaxError) throw corrupt(path, 'is no JSON');
    throw error;
  }
}

function check<T>(place: string, schema: z.ZodType<T>, value: unknown): T {
  const { success, data, error } = schema.safeParse(value);
  if (success) return data;
  const issue = error.issues[0];
  throw corrupt(place, `has a wrong ${issue?.path.join('.') || 'value'}`);
}

/** `place` holds what no run writes. */
export function corrupt(place: string, fact: string): SpillwayError {
  return new SpillwayError('RUN_CORRUPT', `${place} ${fact}; it is not what a run writes`);
}

function scalarsOf(value: unknown): ReportedRun['model'] {
  if (typeof value !== 'object' || value === null) return {};
  const plain: Record<string, string | number | boolean> = {};
  for (const [key, member] of Object.entries(value)) {
    const { success, data } = scalar.safeParse(member);
    if (success) plain[key] = data;
  }
  return plain;
}

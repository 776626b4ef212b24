/**
 * @file What a run left in its folder, checked: lines of metrics.jsonl, summary.json, config.json.
 *
 * A run that goes on, or was killed, has no summary yet and perhaps half a line. Metrics are read
 * line by line into series, so that memory does not grow with the run.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errnoOf } from '../../core/errno.js';
import { SpillwayError } from '../../core/errors.js';
import { exists } from '../checkpoint/file-errors.js';
import { corrupt, readError, readLines } from './read-lines.js';
import { Series } from './series.js';

/** Bytes of a summary or configuration; ours have some hundred. */
const MAX_BYTES = 2 ** 20;

/** JSON has no NaN or infinity; a run writes null. */
const number = z.number().nullable();
const bytes = z.number().nonnegative();
const links = z.object({ upload: bytes, download: bytes, nvme_read: bytes, nvme_write: bytes });
const tiers = z.object({ device: bytes, host: bytes, nvme: bytes });

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

/** summary.json. */
export type ReportedSummary = z.infer<typeof summary>;

/** Values of a line of metrics.jsonl that are drawn. */
export const METRICS = [
  'loss',
  'eval_loss',
  'learning_rate',
  'grad_norm',
  'spillway/step_seconds',
] as const;

export type Metric = (typeof METRICS)[number];

/** metrics.jsonl. */
export interface ReportedMetrics {
  readonly lineCount: number;
  readonly lastStep: number | undefined;
  readonly series: Readonly<Record<Metric, Series>>;
  /** Lines whose training or evaluation loss is not a number, and the first step of these. */
  readonly lossless: { readonly count: number; readonly firstStep: number | undefined };
  /** Tokens per second of the steps between the first line and the last; undefined when unknown. */
  readonly tokensPerSecond: number | undefined;
}

/** A run as its folder tells it. */
export interface ReportedRun {
  readonly metrics: ReportedMetrics;
  readonly summary: ReportedSummary | undefined;
  /** Plain values of config.json: the model's sizes. */
  readonly model: Readonly<Record<string, string | number | boolean>>;
}

/**
 * Reads a run's folder.
 *
 * @throws RUN_NOT_FOUND when it is not there; RUN_CORRUPT for a file that no run wrote; IO_ERROR
 */
export async function readRun(folder: string): Promise<ReportedRun> {
  await checkFolder(folder);
  const metrics = await readMetrics(join(folder, 'metrics.jsonl'));
  const path = join(folder, 'summary.json');
  const found = await readJson(path);
  return {
    metrics,
    summary: found === undefined ? undefined : check(path, found),
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

async function readMetrics(path: string): Promise<ReportedMetrics> {
  const reader = new MetricsReader();
  if (!(await exists(path))) return reader.result;
  let broken: string | undefined;
  for await (const { place, text } of readLines(path)) {
    if (broken !== undefined) throw corrupt(broken, 'is no JSON');
    try {
      reader.add(place, JSON.parse(text));
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      // The last line of a run that is writing, or was killed, may be half a line.
      broken = place;
    }
  }
  return reader.result;
}

/** Lines of metrics.jsonl, one after the other. */
class MetricsReader {
  readonly #series = Object.fromEntries(METRICS.map((name) => [name, new Series()])) as Record<
    Metric,
    Series
  >;
  #lineCount = 0;
  #lastStep: number | undefined;
  #lossless: { count: number; firstStep: number | undefined } = { count: 0, firstStep: undefined };
  /** The last training line, and what was done since the first. */
  #before: { readonly step: number; readonly tokens: number } | undefined;
  #tokens = 0;
  #seconds = 0;

  /** @throws RUN_CORRUPT */
  add(place: string, line: unknown): void {
    if (typeof line !== 'object' || line === null) throw corrupt(place, 'has a wrong value');
    const values = line as Readonly<Record<string, unknown>>;
    const step = numberOf(place, values, 'step');
    if (typeof step !== 'number') throw corrupt(place, 'has a wrong step');
    for (const name of METRICS) {
      const value = numberOf(place, values, name);
      if (value === undefined) continue;
      const isShown = value !== null && this.#series[name].add(step, value);
      if (!isShown && name.endsWith('loss')) this.#noteLossless(step);
    }
    this.#noteSpeed(step, values);
    this.#lineCount += 1;
    this.#lastStep = step;
  }

  get result(): ReportedMetrics {
    return {
      lineCount: this.#lineCount,
      lastStep: this.#lastStep,
      series: this.#series,
      lossless: this.#lossless,
      tokensPerSecond: this.#seconds > 0 ? this.#tokens / this.#seconds : undefined,
    };
  }

  #noteLossless(step: number): void {
    this.#lossless.count += 1;
    this.#lossless.firstStep ??= step;
  }

  #noteSpeed(step: number, values: Readonly<Record<string, unknown>>): void {
    const { num_tokens: tokens, 'spillway/step_seconds': seconds } = values;
    if (typeof tokens !== 'number' || typeof seconds !== 'number') return;
    if (this.#before !== undefined) {
      this.#tokens += tokens - this.#before.tokens;
      this.#seconds += seconds * (step - this.#before.step);
    }
    this.#before = { step, tokens };
  }
}

/** A value of a line; undefined where there is none. */
function numberOf(
  place: string,
  line: Readonly<Record<string, unknown>>,
  name: string,
): number | null | undefined {
  const value = line[name];
  if (value === undefined || value === null || Number.isFinite(value)) return value as number;
  throw corrupt(place, `has a wrong ${name}`);
}

async function readJson(path: string): Promise<unknown> {
  try {
    if ((await stat(path)).size > MAX_BYTES)
      throw corrupt(path, `is larger than ${MAX_BYTES} bytes`);
    return JSON.parse(await readFile(path, 'utf8'));
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT') return undefined;
    if (error instanceof SyntaxError) throw corrupt(path, 'is no JSON');
    throw readError(path, error);
  }
}

function check(place: string, value: unknown): ReportedSummary {
  const { success, data, error } = summary.safeParse(value);
  if (success) return data;
  const issue = error.issues[0];
  throw corrupt(place, `has a wrong ${issue?.path.join('.') || 'value'}`);
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

/**
 * @file Runs of `runTrain` in this process, on tiny fixtures, in folders of their own.
 */
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll } from 'vitest';
import { loadConfig } from '../../src/config/load-config.js';
import type {
  EvaluationRecord,
  RunReporter,
  RunStart,
  RunSummary,
} from '../../src/train/run-reporter.js';
import type { MetricsRecord } from '../../src/train/metrics-file.js';
import { runTrain } from '../../src/train/run-train.js';

/** GPT-2 with 131 tokens, 40 positions and 24,544 parameters. */
export const TINY_MODEL = fileURLToPath(new URL('../../fixtures/gpt2-tiny', import.meta.url));

/** Values by key, as a file holds them. */
export type Keys = Readonly<Record<string, string | number | boolean | readonly string[]>>;

/** What a run told. */
export interface Told {
  readonly starts: RunStart[];
  /** Steps in order. */
  readonly steps: { readonly step: number; readonly loss: number }[];
  readonly records: (MetricsRecord | EvaluationRecord)[];
  /** Names of saved folders. */
  readonly saved: number[];
  /** The last step of a run that a signal ended. */
  interruptedAt?: number;
  summary?: RunSummary;
  readonly infos: string[];
  readonly warnings: string[];
  /** Events by name, in order. */
  readonly events: string[];
}

/** How a run is disturbed. */
export interface Disturbance {
  /** Aborts after this step. */
  readonly stopAfterStep?: number;
  /** Aborts in the evaluation of this step (0: that of the start). */
  readonly stopInEvaluationAt?: number;
  /** Aborts while data are read. */
  readonly stopInPreparation?: boolean;
}

/** Makes a folder that is removed after the calling file's tests. */
export function workFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-train-'));
  afterAll(() => {
    rmSync(folder, { recursive: true, force: true });
  });
  return folder;
}

/** Rows of 8 to 19 tokens that repeat a short cycle. */
export function cyclicRows(count: number, first = 0): object[] {
  return Array.from({ length: count }, (_, index) => {
    const row = index + first;
    return {
      input_ids: Array.from({ length: 8 + ((row * 5) % 12) }, (__, i) => 3 + ((row + i) % 7) * 11),
    };
  });
}

export function writeJsonl(path: string, rows: readonly object[]): string {
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return path;
}

/** Trains with `keys`. */
export async function train(keys: Keys, disturbance: Disturbance = {}): Promise<Told> {
  const flags = new Map(Object.entries(keys)) as never;
  const config = await loadConfig({ flags });
  const told: Told = {
    starts: [],
    steps: [],
    records: [],
    saved: [],
    infos: [],
    warnings: [],
    events: [],
  };
  const controller = new AbortController();
  const reporter = recordingReporter(told, controller, disturbance);
  const logger = {
    info: (message: string) => void told.infos.push(message),
    warn: (message: string) => void told.warnings.push(message),
  };
  await runTrain(config, { logger, reporter, signal: controller.signal });
  return told;
}

function recordingReporter(
  told: Told,
  controller: AbortController,
  { stopAfterStep, stopInEvaluationAt, stopInPreparation }: Disturbance,
): RunReporter {
  let step = 0;
  return {
    preparing: () => {
      if (stopInPreparation === true) controller.abort();
    },
    started: (start) => {
      told.events.push('started');
      told.starts.push(start);
      step = start.firstStep;
    },
    stepped: (progress) => {
      step = progress.step;
      told.steps.push({ step, loss: progress.loss });
      if (step === stopAfterStep) controller.abort();
    },
    logged: (record) => {
      told.events.push(`logged ${record.step}`);
      told.records.push(record);
    },
    evaluating: () => {
      if (step === stopInEvaluationAt) controller.abort();
    },
    evaluated: (record) => {
      told.events.push(`evaluated ${record.step}`);
      told.records.push(record);
    },
    saved: (_folder, savedStep) => {
      told.events.push(`saved ${savedStep}`);
      told.saved.push(savedStep);
    },
    interrupted: (_folder, lastStep) => {
      told.events.push(`interrupted ${lastStep}`);
      told.interruptedAt = lastStep;
    },
    finished: (summary) => {
      told.events.push('finished');
      told.summary = summary;
    },
  };
}

export function readJson(path: string): Record<string, unknown> {
  return JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
}

/** Lines of a run's metrics.jsonl. */
export function metricsOf(output: string): Record<string, number>[] {
  const text = readFileSync(join(output, 'metrics.jsonl'), 'utf8').trimEnd();
  return text === '' ? [] : text.split('\n').map((line) => JSON.parse(line) as never);
}

/** Records without what a clock decides. */
export function timeless(records: readonly object[]): object[] {
  const timed = ['spillway/step_seconds', 'eval_runtime', 'eval_samples_per_second'];
  return records.map((record) =>
    Object.fromEntries(Object.entries(record).filter(([name]) => !timed.includes(name))),
  );
}

/** Steps of the checkpoints in a folder, ascending. */
export function checkpointsIn(output: string): number[] {
  return readdirSync(output)
    .flatMap((name) => /^checkpoint-(\d+)$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);
}

export function weightsIn(folder: string): Buffer {
  return readFileSync(join(folder, 'model.safetensors'));
}

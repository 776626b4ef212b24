/**
 * @file Steps of a GPT-2-small-sized model on the native device beside what the plan says that they
 * take, in the regimes of bench/step.ts.
 *
 * Each round calibrates in this process, as `spillway tune` does, predicts the steady step, as
 * `spillway plan` does, and takes a few steps: machines drift, neighbours are compared. `ratio` is
 * predicted to measured seconds. `ownRatio` is the same for a simulation by the durations of the
 * run's own operations: what it lacks is the simulator's fault, what only `ratio` lacks the costs'.
 *
 * One thread (`SPILLWAY_THREADS=1` unless set) and one optimizer worker. Prints one JSON line per
 * regime, medians over rounds, and one per claim. Run: `npm run bench -- prediction`;
 * `BENCH_ROUNDS` sets the number of rounds, `BENCH_REGIMES` names some of the regimes, and
 * `BENCH_KINDS=1` adds a line per kind of operation and lane: its seconds per step, predicted and
 * measured, in the last round.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LINKS, type Lane } from '../core/types.js';
import { calibrate } from '../src/engine/calibrate/calibrate.js';
import { knownCosts } from '../src/engine/calibrate/cost-store.js';
import { Engine } from '../src/engine/engine.js';
import { forecastTraining, type TrainingForecast } from '../src/engine/forecast-training.js';
import type { HostWork, Span } from '../src/engine/step-executor.js';
import { laneSeconds } from '../src/plan/costs.js';
import { measuredRun, type MeasuredRun } from '../src/plan/measured-seconds.js';
import { simulateWith } from '../src/plan/simulate.js';
import type { Operation } from '../src/plan/step-plan.js';
import { median, printCase, round4, verdictOf } from './alternate.js';
import { gpt2Small, LENGTH, REGIMES, tokenBatch, type Regime } from './regimes.js';

/** Steps of a round, after one that follows the pause of calibrating. */
const STEPS = 3;

/** The first steps fault memory in. */
const WARM_UP = 2;

/** Regimes that a prediction hits within 25 %, at least. */
const HITS = { target: 2, least: 0.75 };

const OWN_TARGET = 0.95;

/** One round of one regime. */
interface Round {
  readonly predicted: number;
  readonly measured: readonly number[];
  /** Of the same steps, simulated by their own durations. */
  readonly own: readonly number[];
  readonly calibrated: number;
}

/** 1 where both are equal, less the larger the error. */
const closeness = (ratio: number): number => round4(1 - Math.abs(ratio - 1));

const sum = (values: readonly number[]): number =>
  values.reduce((total, value) => total + value, 0);

/** Everything that a regime's rounds share. */
interface Bench {
  readonly name: string;
  readonly engine: Engine;
  readonly options: Parameters<typeof forecastTraining>[0];
  readonly nvmePaths: readonly string[];
  /** Where costs are kept. */
  readonly folder: string;
  readonly spans: Span[];
  readonly hostWork: HostWork[];
}

async function openBench(name: string, regime: Regime, folder: string): Promise<Bench> {
  const nvmePaths = name === 'nvme' ? [folder] : [];
  const options = {
    ...regime,
    ...(nvmePaths.length > 0 ? { nvmePath: nvmePaths } : {}),
    device: 'native',
    model: gpt2Small(),
    exampleBatch: tokenBatch(),
    optimizerWorkers: 1,
  };
  const spans: Span[] = [];
  const hostWork: HostWork[] = [];
  const engine = await Engine.create({
    ...options,
    execution: {
      onSpan: (span) => spans.push(span),
      onHostWork: (work) => hostWork.push(work),
    },
  });
  const costs = join(folder, 'costs');
  return { name, engine, options, nvmePaths, folder: costs, spans, hostWork };
}

/** Calibrates and predicts. */
async function predict(bench: Bench): Promise<TrainingForecast> {
  const { options, nvmePaths, folder } = bench;
  const dtype = 'float32';
  await calibrate({
    device: 'native',
    dtype,
    workers: 1,
    nvmePaths,
    compute: { options, length: LENGTH, batchOf: tokenBatch },
    folder,
  });
  return forecastTraining(options, (device, workers) =>
    knownCosts({ device, dtype, workers, nvmePaths }, undefined, folder),
  );
}

/** Takes steps; returns the seconds of all but the first, and what their spans say. */
async function takeSteps(bench: Bench): Promise<{ measured: number[]; run: MeasuredRun }> {
  const { engine, spans, hostWork } = bench;
  spans.length = 0;
  hostWork.length = 0;
  const ends: number[] = [];
  for (let step = 0; step <= STEPS; step += 1) {
    await engine.step([tokenBatch()]);
    ends.push(performance.now() / 1000);
  }
  await engine.drain();
  return { measured: differences(ends), run: measuredRun(spans, hostWork) };
}

const differences = (ends: readonly number[]): number[] =>
  ends.slice(1).map((end, index) => end - ends[index]!);

async function runRound(bench: Bench, isLast: boolean): Promise<Round> {
  const { engine } = bench;
  const start = performance.now();
  const forecast = await predict(bench);
  const calibrated = (performance.now() - start) / 1000;
  const { measured, run } = await takeSteps(bench);
  const { stagingCount: read, spillStagingCount: write } = engine.plan;
  const again = simulateWith(
    { plan: engine.stepPlan([tokenBatch()]), repeat: STEPS + 1 },
    run.seconds,
    { ...run.rules, buffers: { read, write } },
  );
  const own = differences(again.steps.map(({ finished }) => finished));
  if (isLast && process.env['BENCH_KINDS'] === '1') printKinds(bench.name, forecast, run);
  return { predicted: forecast.timeline.stepSeconds, measured, own, calibrated };
}

/** Seconds per step of each lane by kind of operation, as predicted and as measured. */
function printKinds(name: string, forecast: TrainingForecast, run: MeasuredRun): void {
  const { costs } = forecast;
  const kinds = new Map<string, { count: number; predicted: number; measured: number }>();
  const add = (operation: Operation, part: Lane | 'host', predicted: number, measured: number) => {
    if (predicted === 0 && measured === 0) return;
    const key = `${part} ${operation.action.kind}`;
    const before = kinds.get(key) ?? { count: 0, predicted: 0, measured: 0 };
    kinds.set(key, {
      count: before.count + 1,
      predicted: before.predicted + predicted,
      measured: before.measured + measured,
    });
  };
  const predictedSeconds = laneSeconds(costs);
  const mean = (of: (step: number) => number): number =>
    sum(Array.from({ length: STEPS }, (_, step) => of(step + 1))) / STEPS;
  for (const operation of forecast.step.operations) {
    for (const lane of [...LINKS, 'compute', 'update'] as const) {
      const isOwn = lane === 'compute' || lane === 'update';
      if (isOwn ? operation.lane !== lane : operation.action.kind === 'update') continue;
      const measured = mean((step) => run.seconds(step, operation, lane));
      add(operation, lane, predictedSeconds(0, operation, lane), measured);
    }
    const host = mean((step) => run.rules.hostSeconds?.(step, operation) ?? 0);
    add(operation, 'host', costs.hostSeconds?.(0, operation) ?? 0, host);
  }
  for (const [kind, { count, predicted, measured }] of [...kinds].sort()) {
    const figures = { count, predicted: round4(predicted), measured: round4(measured) };
    printCase({ case: `prediction ${name} ${kind}`, ...figures });
  }
}

async function benchRegime(name: string, regime: Regime, folder: string): Promise<Round[]> {
  const count = Number(process.env['BENCH_ROUNDS'] ?? 5);
  const bench = await openBench(name, regime, folder);
  try {
    for (let step = 0; step < WARM_UP; step += 1) await bench.engine.step([tokenBatch()]);
    const rounds: Round[] = [];
    for (let round = 0; round < count; round += 1) {
      await bench.engine.drain();
      rounds.push(await runRound(bench, round === count - 1));
    }
    return rounds;
  } finally {
    await bench.engine.close();
  }
}

export default async function benchPrediction(): Promise<void> {
  process.env['SPILLWAY_THREADS'] ??= '1';
  const folder = mkdtempSync(join(tmpdir(), 'spillway-bench-'));
  const wanted = process.env['BENCH_REGIMES']?.split(',');
  const hits: boolean[] = [];
  const owns: number[] = [];
  try {
    for (const [name, regime] of Object.entries(REGIMES)) {
      if (wanted?.includes(name) === false) continue;
      const rounds = await benchRegime(name, regime, folder);
      const ratios = rounds.map(({ predicted, measured }) => predicted / median(measured));
      const ownRatios = rounds.map(({ own, measured }) => sum(own) / sum(measured));
      const [ratio, ownRatio] = [median(ratios), median(ownRatios)];
      hits.push(closeness(ratio) >= HITS.least);
      owns.push(closeness(ownRatio));
      printCase({
        case: `prediction gpt2-small ${name}`,
        threads: Number(process.env['SPILLWAY_THREADS']),
        ratio: round4(ratio),
        ownRatio: round4(ownRatio),
        predictedSeconds: round4(median(rounds.map(({ predicted }) => predicted))),
        measuredSeconds: round4(median(rounds.flatMap(({ measured }) => measured))),
        calibrationSeconds: round4(median(rounds.map(({ calibrated }) => calibrated))),
        ratios: ratios.map(round4),
        ownRatios: ownRatios.map(round4),
        rounds: rounds.length,
        steps: rounds.length * STEPS,
      });
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  const regimes = hits.length;
  const hitCount = hits.filter(Boolean).length;
  const target = Math.min(HITS.target, regimes);
  const hit = verdictOf(hitCount, target);
  printCase({ case: 'prediction by costs: regimes within 25 %', regimes, hitCount, ...hit });
  const share = Math.min(...owns);
  printCase({ case: 'prediction by own durations', share, ...verdictOf(share, OWN_TARGET) });
}

/**
 * @file Training steps of a GPT-2-small-sized model on the native device, in three regimes: all on
 * the device, weights and optimizer states on the host, everything on NVMe.
 *
 * Each step is set beside what its own operations took: `serialSeconds` is the sum over the lanes
 * of the time in which the lane was busy, `longestLaneSeconds` the largest of them, which no overlap
 * beats. `hidden` is the share of what could be hidden that was: 1 when a step takes no longer than
 * its longest lane, 0 when its lanes follow one another. Lanes share the cores, so that each takes
 * longer than alone.
 *
 * One thread (`SPILLWAY_THREADS=1` unless set) and one optimizer worker. Prints one JSON line per
 * regime; medians. Run: `npm run bench -- step`; `BENCH_ROUNDS` sets the number of steps.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LANES, type Lane } from '../core/types.js';
import { Engine } from '../src/engine/engine.js';
import type { Span } from '../src/engine/step-executor.js';
import { bytesPerLink } from '../src/plan/step-plan.js';
import { gpt2Small, LENGTH, REGIMES, tokenBatch, type Regime } from './regimes.js';

/** The first steps fault memory in, and start with no update before them. */
const WARM_UP = 2;

const median = (values: number[]) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
const round4 = (value: number) => Number(value.toPrecision(4));

/** Seconds in which each lane was busy: pieces that run side by side on one count once. */
function laneSeconds(spans: readonly Span[]): Record<Lane, number> {
  const seconds = Object.fromEntries(LANES.map((lane) => [lane, 0])) as Record<Lane, number>;
  const busyUntil = new Map<Lane, number>();
  for (const { lane, start, end } of [...spans].sort((a, b) => a.start - b.start)) {
    const from = Math.max(start, busyUntil.get(lane) ?? 0);
    if (end <= from) continue;
    seconds[lane] += (end - from) / 1000;
    busyUntil.set(lane, end);
  }
  return seconds;
}

async function benchRegime(name: string, regime: Regime, nvmePath: string): Promise<void> {
  const rounds = Number(process.env['BENCH_ROUNDS'] ?? 9);
  const spans: Span[] = [];
  const batch = tokenBatch();
  const engine = await Engine.create({
    ...regime,
    ...(name === 'nvme' ? { nvmePath } : {}),
    device: 'native',
    model: gpt2Small(),
    exampleBatch: batch,
    optimizerWorkers: 1,
    execution: { onSpan: (span) => spans.push(span) },
  });
  try {
    const steps: number[] = [];
    for (let step = 0; step < WARM_UP + rounds; step += 1) {
      const start = performance.now();
      await engine.step([batch]);
      steps.push((performance.now() - start) / 1000);
    }
    await engine.drain();
    const measured = steps.slice(WARM_UP);
    const lanes = measured.map((_, index) =>
      laneSeconds(spans.filter(({ step }) => step === WARM_UP + index + 1)),
    );
    const serial = lanes.map((one) => Object.values(one).reduce((sum, value) => sum + value, 0));
    const longest = lanes.map((one) => Math.max(...Object.values(one)));
    const hidden = measured.map(
      (seconds, i) => (serial[i]! - seconds) / Math.max(1e-9, serial[i]! - longest[i]!),
    );
    const line = {
      case: `step gpt2-small ${name}`,
      tokens: LENGTH,
      threads: Number(process.env['SPILLWAY_THREADS']),
      seconds: round4(median([...measured])),
      serialSeconds: round4(median(serial)),
      longestLaneSeconds: round4(median(longest)),
      hidden: round4(median(hidden)),
      laneSeconds: Object.fromEntries(
        LANES.map((lane) => [lane, round4(median(lanes.map((one) => one[lane])))] as const).filter(
          ([, seconds]) => seconds > 0,
        ),
      ),
      bytes: bytesPerLink(engine.stepPlan([batch])),
      rounds,
    };
    process.stdout.write(`${JSON.stringify(line)}\n`);
  } finally {
    await engine.close();
  }
}

export default async function benchStep(): Promise<void> {
  process.env['SPILLWAY_THREADS'] ??= '1';
  const folder = mkdtempSync(join(tmpdir(), 'spillway-bench-'));
  try {
    for (const [name, regime] of Object.entries(REGIMES)) await benchRegime(name, regime, folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

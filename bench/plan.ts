/**
 * @file How long `spillway plan` takes for Llama 3 70B, and what memory, as a user meets it: a
 * process of its own each time, nothing compiled or cached by one before, on disk or in memory.
 *
 * Claimed for the order that a run takes by itself: less than 2 s and 500 MiB with 1 and 4
 * micro-batches per step. Longer steps are shown without a claim: 16 micro-batches are near 2 s, and
 * in horizontal order each has as many fetches as all together in vertical order. `nodeSeconds` is
 * what `spillway --version` takes beside it, mostly Node.js's own start.
 *
 * No weights, no data; only config.json is read.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { PlanReport } from '../src/train/plan-report.js';
import { median, printCase, round4, ROUNDS } from './alternate.js';
import { runCli, type WatchedCommand } from './run-cli.js';

const LIMIT_SECONDS = 2;
const LIMIT_BYTES = 500 * 2 ** 20;

/** Its config.json, and nothing else. */
const MODEL = fileURLToPath(new URL('../fixtures/llama-3-70b', import.meta.url));
const PARAMETERS = 70_553_706_496;

interface Shape {
  readonly order: 'auto' | 'horizontal';
  readonly microBatches: number;
  readonly isClaimed: boolean;
}

const SHAPES: readonly Shape[] = [
  { order: 'auto', microBatches: 1, isClaimed: true },
  { order: 'auto', microBatches: 4, isClaimed: true },
  { order: 'auto', microBatches: 16, isClaimed: false },
  { order: 'horizontal', microBatches: 4, isClaimed: false },
  { order: 'horizontal', microBatches: 16, isClaimed: false },
];

const textOf = ({ lines }: WatchedCommand): string => lines.map(({ text }) => text).join('\n');

async function benchShape(shape: Shape, folder: string): Promise<void> {
  const { order, microBatches, isClaimed } = shape;
  // Costs that were measured on this machine would be read too.
  const env = { ...process.env, XDG_CACHE_HOME: join(folder, 'cache') };
  const keys = {
    model_name_or_path: MODEL,
    dtype: 'bfloat16',
    device_memory: '24GiB',
    host_memory: '128GiB',
    nvme_path: join(folder, 'nvme'),
    nvme_memory: '2TiB',
    max_length: '4096',
    gradient_accumulation_steps: String(microBatches),
    micro_batch_order: order,
  };
  const flags = Object.entries(keys).flatMap(([key, value]) => [`--${key}`, value]);
  const plans: WatchedCommand[] = [];
  const starts: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    starts.push((await runCli(['--version'], env)).seconds);
    plans.push(await runCli(['plan', ...flags, '--json'], env));
  }
  const report = JSON.parse(textOf(plans[0]!)) as PlanReport;
  if (report.parameters !== PARAMETERS) throw new Error(`planned ${report.parameters} parameters`);
  const seconds = median(plans.map((plan) => plan.seconds));
  const peakRssBytes = Math.max(...plans.map((plan) => plan.peakRssBytes));
  const share = round4(Math.min(LIMIT_SECONDS / seconds, LIMIT_BYTES / peakRssBytes));
  printCase({
    case: `plan 70B ${report.order}${order === 'auto' ? ' (auto)' : ''} G=${microBatches}`,
    seconds: round4(seconds),
    nodeSeconds: round4(median(starts)),
    peakRssBytes,
    limitSeconds: LIMIT_SECONDS,
    limitBytes: LIMIT_BYTES,
    shareOfLimits: share,
    ...(isClaimed && { target: 1, holds: share >= 1 }),
  });
}

export default async function benchPlan(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-plan-'));
  try {
    for (const shape of SHAPES) await benchShape(shape, folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

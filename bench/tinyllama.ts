/**
 * @file Fine-tunes a model of TinyLlama's configuration (1.1 billion parameters, 16.4 GiB of
 * training state) for three steps with 3 GiB of device and host memory together, by the command
 * line that a user has: `spillway init`, `tune`, `plan`, `train`, each a process of its own.
 *
 * Its claims are booleans of the line that it prints, and it exits with 1 when one does not hold:
 *
 * - bytes: what each link moved per step, by the counters of links and disks in summary.json, by
 *   the trace of each step and kind of operation, and by the kernel's count, is what
 *   `spillway plan` said; the kernel's may differ by 1 %, for the trace is written to disk as well;
 * - peaks: what each tier held is what the plan said, and within the budgets;
 * - memory: the process never held more than its limit, loading and saving included;
 * - spill: gradients are written to NVMe, as many bytes as planned;
 * - training: losses are finite and near that of a random model, and clipping scaled gradients.
 *
 * Rows are 512 tokens, 2 micro-batches of one row per step, bfloat16. Takes minutes and some 20 GB
 * of disk below the system's temporary folder, all removed at the end. Run alone, by name:
 * `npm run bench -- tinyllama`; `BENCH_LAYERS=4` tries it on fewer layers, with budgets that shrink
 * with them, and `BENCH_MODEL=FOLDER` takes a model that an earlier `spillway init` made.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { LINKS, TIERS, type Link, type Tier } from '../core/types.js';
import type { PlanReport } from '../src/train/plan-report.js';
import type { RunSummary } from '../src/train/run-reporter.js';
import { ROW_LENGTH, TINYLLAMA_LAYERS, tinyllamaConfig, writeRows } from './fine-tune/inputs.js';
import { tracedBytes, type ActionBytes } from './fine-tune/traced-bytes.js';
import { runCli, type DiskBytes, type TimedLine } from './run-cli.js';

const STEPS = 3;
const MICRO_BATCHES = 2;
const MIB = 2 ** 20;

/** What the process may hold beyond the budgets: Node.js, tfjs, the plan, the optimizer's threads. */
const BESIDE_BUDGETS = 0.4 * 1024 * MIB;

const GIVEN_MODEL = process.env['BENCH_MODEL'];

/** Kinds of operations that put gradients into their home. */
const GRADIENT_ACTIONS = ['write-gradients', 'write-tile', 'write-rows', 'merge-uses'];

/** An event of `spillway train --json`. */
interface Event {
  readonly event: string;
  readonly step?: number;
  readonly loss?: number;
  readonly grad_norm?: number;
}

/** A finished run, seen from outside. */
interface FineTuning {
  readonly started: TimedLine;
  /** When each step was committed. */
  readonly committed: readonly TimedLine[];
  readonly losses: readonly number[];
  readonly gradNorms: readonly number[];
  readonly seconds: number;
  readonly peakRssBytes: number;
  readonly summary: RunSummary;
  readonly traced: ReadonlyMap<number, ActionBytes>;
}

const note = (text: string): boolean => process.stderr.write(`tinyllama: ${text}\n`);
const round4 = (value: number): number => Number(value.toPrecision(4));

/** Memory of host and device by the number of layers: a layer's share, and the vocabulary's. */
function budgetsFor(layers: number): { device: number; host: number } {
  const share = layers / TINYLLAMA_LAYERS;
  return {
    device: Math.round(512 + 512 * share) * MIB,
    host: Math.round(256 + 1792 * share) * MIB,
  };
}

/** Every key of the run; the final model is always saved, checkpoints are not. */
function configuration(folder: string, layers: number): string {
  const { device, host } = budgetsFor(layers);
  const path = join(folder, 'run.json');
  const keys = {
    model_name_or_path: GIVEN_MODEL ?? join(folder, 'model'),
    data_files: [writeRows(folder, STEPS * MICRO_BATCHES)],
    output_dir: join(folder, 'output'),
    bf16: true,
    device_memory: device,
    host_memory: host,
    nvme_path: [join(folder, 'nvme')],
    max_length: ROW_LENGTH,
    per_device_train_batch_size: 1,
    gradient_accumulation_steps: MICRO_BATCHES,
    max_steps: STEPS,
    max_grad_norm: 1,
    logging_steps: 1,
    save_strategy: 'no',
    trace: join(folder, 'trace.json'),
    trace_steps: STEPS,
  };
  writeFileSync(path, JSON.stringify(keys));
  return path;
}

async function makeModel(folder: string, layers: number, env: NodeJS.ProcessEnv): Promise<void> {
  if (GIVEN_MODEL !== undefined) return;
  const config = join(folder, 'config.json');
  writeFileSync(config, JSON.stringify(tinyllamaConfig(layers)));
  note(`making a model of ${layers} layers`);
  const args = ['init', config, join(folder, 'model'), '--seed', '1', '--dtype', 'bfloat16'];
  const { seconds } = await runCli(args, env);
  note(`made in ${seconds.toFixed(0)} s`);
}

async function planned(config: string, env: NodeJS.ProcessEnv): Promise<PlanReport> {
  // So that the seconds are predicted by this machine's figures.
  await runCli(['tune', config], env);
  const { lines } = await runCli(['plan', config, '--json'], env);
  return JSON.parse(lines.map(({ text }) => text).join('\n')) as PlanReport;
}

async function fineTune(
  folder: string,
  config: string,
  env: NodeJS.ProcessEnv,
): Promise<FineTuning> {
  const events: (Event & { readonly line: TimedLine })[] = [];
  const { seconds, peakRssBytes } = await runCli(['train', config, '--json'], env, (line) => {
    const event = { ...(JSON.parse(line.text) as Event), line };
    events.push(event);
    if (event.event === 'preparing') return;
    const step = event.step === undefined ? '' : ` ${event.step}`;
    note(`${event.event}${step} after ${line.at.toFixed(1)} s`);
  });
  const logged = events.filter(({ event }) => event === 'logged');
  return {
    started: events.find(({ event }) => event === 'started')!.line,
    committed: logged.map(({ line }) => line),
    losses: logged.map(({ loss }) => loss!),
    gradNorms: logged.map(({ grad_norm: norm }) => norm!),
    seconds,
    peakRssBytes,
    summary: JSON.parse(readFileSync(join(folder, 'output/summary.json'), 'utf8')) as RunSummary,
    traced: await tracedBytes(join(folder, 'trace.json')),
  };
}

/** The same for every link or tier. */
function every<K extends string>(keys: readonly K[], holds: (key: K) => boolean): boolean {
  return keys.every(holds);
}

function gradientWrites(bytes: ActionBytes): number {
  return GRADIENT_ACTIONS.reduce((sum, action) => sum + (bytes[action]?.nvme_write ?? 0), 0);
}

/** What the kernel moved while steps ran, per step; undefined where it does not tell. */
function kernelBytesPerStep({ started, committed }: FineTuning): DiskBytes | undefined {
  const [before, after] = [started.disk, committed.at(-1)?.disk];
  if (before === undefined || after === undefined) return undefined;
  return {
    read: Math.round((after.read - before.read) / STEPS),
    written: Math.round((after.written - before.written) / STEPS),
  };
}

function claimsOf(plan: PlanReport, run: FineTuning, rssLimitBytes: number, totalBudget: number) {
  const { summary, traced } = run;
  const { bytes_per_step: bytes, bytes_per_step_by_action: byAction, peak_bytes: peaks } = plan;
  const kernel = kernelBytesPerStep(run);
  const near = (counted: number, said: number): boolean => Math.abs(counted / said - 1) < 0.01;
  return {
    bytes_as_planned: every<Link>(
      LINKS,
      (link) => summary.bytes_moved_per_step?.[link] === bytes[link],
    ),
    traced_as_planned:
      traced.size === STEPS &&
      [...traced.values()].every((one) => isDeepStrictEqual(one, byAction)),
    // Linux tells; other systems do not.
    ...(kernel !== undefined && {
      kernel_agrees: near(kernel.read, bytes.nvme_read) && near(kernel.written, bytes.nvme_write),
    }),
    peaks_as_planned: every<Tier>(TIERS, (tier) => summary.peak_bytes[tier] === peaks[tier]),
    peaks_within_budgets:
      summary.budget_bytes.device + summary.budget_bytes.host <= totalBudget &&
      every<Tier>(TIERS, (tier) => summary.peak_bytes[tier] <= summary.budget_bytes[tier]),
    rss_within_limit: Math.max(summary.peak_rss_bytes, run.peakRssBytes) < rssLimitBytes,
    gradients_spill:
      plan.homes.grad.nvme > 0 &&
      gradientWrites(byAction) > 0 &&
      [...traced.values()].every(
        (one) => gradientWrites(one) === gradientWrites(byAction as ActionBytes),
      ),
    // A random model's loss is near the logarithm of 32,000.
    losses_finite: run.losses.length === STEPS && run.losses.every((loss) => loss > 9 && loss < 12),
    gradients_clipped: run.gradNorms.some((norm) => norm > 1),
  };
}

function report(layers: number, plan: PlanReport, run: FineTuning): boolean {
  const { device, host } = budgetsFor(layers);
  const rssLimitBytes = device + host + BESIDE_BUDGETS;
  const { summary, started, committed } = run;
  const bytesPerStep = summary.bytes_moved_per_step!;
  const stepSeconds = (committed.at(-1)!.at - started.at) / STEPS;
  const claims = claimsOf(plan, run, rssLimitBytes, device + host);
  const line = {
    case: `tinyllama ${layers} layers`,
    parameters: plan.parameters,
    stateBytes: plan.state_bytes,
    budgetBytes: summary.budget_bytes,
    peakBytes: summary.peak_bytes,
    peakRssBytes: Math.max(summary.peak_rss_bytes, run.peakRssBytes),
    rssLimitBytes,
    homes: plan.homes,
    order: plan.order,
    bytesPerStep,
    plannedBytesPerStep: plan.bytes_per_step,
    kernelBytesPerStep: kernelBytesPerStep(run),
    gradientBytesToNvmePerStep: gradientWrites(run.traced.get(1) ?? {}),
    losses: run.losses,
    gradNorms: run.gradNorms,
    loadSeconds: round4(started.at),
    loadBytesToNvme: summary.bytes_moved.nvme_write - STEPS * bytesPerStep.nvme_write,
    stepSeconds: round4(stepSeconds),
    tokensPerSecond: round4((MICRO_BATCHES * ROW_LENGTH) / stepSeconds),
    predictedStepSeconds: round4(plan.seconds_per_step.total),
    predictedFrom: plan.costs,
    limitedBy: plan.limited_by,
    saveSeconds: round4(run.seconds - committed.at(-1)!.at),
    claims,
  };
  process.stdout.write(`${JSON.stringify(line)}\n`);
  return Object.values(claims).every((holds) => holds);
}

export default async function benchTinyllama(): Promise<void> {
  const layers = Number(process.env['BENCH_LAYERS'] ?? TINYLLAMA_LAYERS);
  const folder = mkdtempSync(join(tmpdir(), 'spillway-tinyllama-'));
  try {
    mkdirSync(join(folder, 'cache'));
    const env = { ...process.env, XDG_CACHE_HOME: join(folder, 'cache') };
    const config = configuration(folder, layers);
    await makeModel(folder, layers, env);
    const plan = await planned(config, env);
    const run = await fineTune(folder, config, env);
    if (!report(layers, plan, run)) process.exitCode = 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

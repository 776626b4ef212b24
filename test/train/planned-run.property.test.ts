// Goal: whatever the configuration, a run on the native device moves per step and holds exactly what
// `spillway plan` said before, from the smallest budgets upwards.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import { readModelDefinition } from '../../src/checkpoint/read-model-definition.js';
import { loadConfig } from '../../src/config/load-config.js';
import { planReport, type PlanReport } from '../../src/train/plan-report.js';
import { availableDevices } from '../../tiers/device/create-device.js';
import { timeLimitMs, untilDeadline } from '../engine/until-deadline.js';
import { train, workFolder, writeJsonl, type Keys } from './train-run.js';

/** The test's time; a case takes half a second. */
const TIME_LIMIT_MS = timeLimitMs(12);

const FIXTURES = fileURLToPath(new URL('../../fixtures', import.meta.url));
/** Tokens that every fixture has. */
const VOCABULARY = 67;
const AMPLE = 2 ** 30;

const folder = workFolder();
const path = (name: string): string => join(folder, name);

/** Every family and form of checkpoint. */
const MODELS = readdirSync(FIXTURES).filter((name) => /-tiny(-|$)/.test(name));

interface Case {
  readonly model: string;
  readonly batchSize: number;
  readonly microBatches: number;
  readonly length: number;
  /** Rows of an evaluated micro-batch. */
  readonly evaluated: number | undefined;
  readonly usesNvme: boolean;
  readonly keys: Keys;
  /** Bytes above the smallest budgets. */
  readonly slack: { readonly device: number; readonly host: number; readonly nvme: number };
}

const slack = (max: number) => fc.oneof(fc.constant(0), fc.integer({ min: 0, max }));
const offload = fc.constantFrom('auto', 'auto', 'cpu', 'nvme', 'none');

const randomCase: fc.Arbitrary<Case> = fc.record({
  model: fc.constantFrom(...MODELS),
  batchSize: fc.integer({ min: 1, max: 3 }),
  microBatches: fc.integer({ min: 1, max: 4 }),
  length: fc.integer({ min: 2, max: 24 }),
  evaluated: fc.option(fc.integer({ min: 1, max: 6 }), { nil: undefined }),
  usesNvme: fc.boolean(),
  keys: fc.record({
    dtype: fc.constantFrom('float32', 'bfloat16'),
    micro_batch_order: fc.constantFrom('auto', 'vertical', 'horizontal'),
    max_grad_norm: fc.constantFrom(0, 0.01, 1),
    sub_group_size: fc.constantFrom(4096, 8192, 16_777_216),
    optimizer_workers: fc.integer({ min: 1, max: 3 }),
    packing: fc.boolean(),
    'offload_param.device': offload,
    'offload_optimizer.device': offload,
  }),
  slack: fc.record({ device: slack(400_000), host: slack(6_000_000), nvme: slack(6_000_000) }),
});

/** Its states are smaller than the buffers to stage them. */
const SMALL_MODEL: Case = {
  model: 'llama3-tiny',
  batchSize: 1,
  microBatches: 1,
  length: 2,
  evaluated: undefined,
  usesNvme: true,
  keys: {
    dtype: 'float32',
    micro_batch_order: 'auto',
    max_grad_norm: 0,
    sub_group_size: 16_777_216,
    optimizer_workers: 3,
    packing: false,
    'offload_param.device': 'auto',
    'offload_optimizer.device': 'auto',
  },
  slack: { device: 0, host: 0, nvme: 0 },
};

async function planOf(keys: Keys): Promise<PlanReport> {
  const config = await loadConfig({ flags: new Map(Object.entries(keys)) });
  return (await planReport(config, silentLogger)).report;
}

async function holds(one: Case): Promise<void> {
  const modelFolder = join(FIXTURES, one.model);
  const { maxPositions } = await readModelDefinition(modelFolder);
  // Documents of packed rows, and rows, are within every window of these models.
  const length = Math.min(one.length, maxPositions, 17);
  const steps = 2;
  const trained = steps * one.microBatches * one.batchSize;
  const rows = Array.from({ length: trained + (one.evaluated ?? 0) }, (_, row) => ({
    input_ids: Array.from({ length }, (__, at) => (row * 5 + at * 3) % VOCABULARY),
  }));
  const near = (wish: unknown): unknown => (wish === 'nvme' && !one.usesNvme ? 'cpu' : wish);
  const keys = {
    ...one.keys,
    'offload_param.device': near(one.keys['offload_param.device']),
    'offload_optimizer.device': near(one.keys['offload_optimizer.device']),
    model_name_or_path: modelFolder,
    data_files: writeJsonl(path('rows.jsonl'), rows),
    output_dir: path('output'),
    max_length: length,
    per_device_train_batch_size: one.batchSize,
    gradient_accumulation_steps: one.microBatches,
    max_steps: steps,
    save_strategy: 'no',
    token_cache: 'none',
    ...(one.evaluated !== undefined && {
      eval_strategy: 'steps',
      eval_steps: 1,
      eval_split: one.evaluated,
      per_device_eval_batch_size: one.evaluated,
    }),
    ...(one.usesNvme && { nvme_path: path('nvme') }),
  } as Keys;
  const ample = { device_memory: AMPLE, host_memory: AMPLE, nvme_memory: AMPLE };
  const least = (await planOf({ ...keys, ...ample })).minimum_budgets;
  const run = {
    ...keys,
    device_memory: least.device + one.slack.device,
    host_memory: least.host + one.slack.host,
    nvme_memory: least.nvme + one.slack.nvme,
  };
  const plan = await planOf(run);
  const { summary } = await train(run);
  expect(summary!.bytes_moved_per_step).toEqual(plan.bytes_per_step);
  expect(summary!.peak_bytes).toEqual(plan.peak_bytes);
  expect(summary!.planned).toEqual({
    bytes_per_step: plan.bytes_per_step,
    peak_bytes: plan.peak_bytes,
  });
  const smallest = {
    device_memory: least.device,
    host_memory: least.host,
    nvme_memory: least.nvme,
  };
  for (const [key, bytes] of Object.entries(smallest)) {
    if (bytes === 0) continue;
    const less = { ...keys, ...smallest, [key]: bytes - 1 };
    await expect(planOf(less)).rejects.toMatchObject({ code: 'BUDGET_TOO_SMALL' });
  }
}

describe.runIf(availableDevices().includes('native'))('on native', () => {
  it(
    'a run does what its plan said',
    async () => {
      await fc.assert(fc.asyncProperty(randomCase, untilDeadline(TIME_LIMIT_MS, holds)), {
        numRuns: 1000,
        examples: [[SMALL_MODEL]],
      });
    },
    4 * TIME_LIMIT_MS,
  );
});

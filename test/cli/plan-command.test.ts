// Goal: plan tells what train then does, from a configuration and a config.json alone.
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { LINKS, TIERS } from '../../core/types.js';
import { runCli } from '../../src/cli/run-cli.js';
import type { PlanReport } from '../../src/train/plan-report.js';
import { TINY_MODEL, readJson, trainArguments, writeJsonl, type Flags } from './end-to-end.js';

const folder = mkdtempSync(join(tmpdir(), 'spillway-plan-'));
const path = (name: string): string => join(folder, name);
afterAll(() => {
  rmSync(folder, { recursive: true });
});

const stdout = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
const stderr = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
afterEach(() => {
  stdout.mockClear();
  stderr.mockClear();
});

async function printed(command: string, flags: Flags, ...more: string[]): Promise<string> {
  stdout.mockClear();
  const [, ...args] = trainArguments(flags);
  expect(await runCli([command, ...args, ...more])).toBe(0);
  return stdout.mock.calls.map(([text]) => String(text)).join('');
}

async function planOf(flags: Flags): Promise<PlanReport> {
  return JSON.parse(await printed('plan', flags, '--json')) as PlanReport;
}

type Summary = Pick<PlanReport, 'peak_bytes' | 'budget_bytes'> & {
  readonly bytes_moved_per_step: PlanReport['bytes_per_step'];
};

/** A file of rows that fill all positions. */
function rowsOf(name: string, count: number): string {
  return writeJsonl(
    path(name),
    Array.from({ length: count }, (_, row) => ({
      input_ids: Array.from({ length: 40 }, (__, at) => (row + at * 3) % 131),
    })),
  );
}

/** GPT-2 of 24,544 parameters and 40 positions; its rows fill them all. */
const RUN: Flags = {
  model_name_or_path: TINY_MODEL,
  data_files: rowsOf('rows.jsonl', 6),
  output_dir: path('output'),
  device_memory: '2MiB',
  host_memory: '4MiB',
  nvme_path: path('nvme'),
  nvme_memory: '8MiB',
  per_device_train_batch_size: 2,
  gradient_accumulation_steps: 3,
  max_steps: 2,
  save_strategy: 'no',
};

describe('the plan', () => {
  it('is what the run does: bytes per step, peaks, at the given and the least budgets', async () => {
    const plan = await planOf(RUN);
    const least = plan.minimum_budgets;
    const smallest = {
      device_memory: least.device,
      host_memory: least.host,
      nvme_memory: least.nvme,
    };
    for (const budgets of [{}, smallest]) {
      const flags = { ...RUN, ...budgets };
      const planned = await planOf(flags);
      await printed('train', flags);
      const summary = readJson(path('output/summary.json')) as Summary;
      expect(planned.peak_bytes).toEqual(summary.peak_bytes);
      expect(planned.bytes_per_step).toEqual(summary.bytes_moved_per_step);
      for (const tier of TIERS) {
        expect(planned.peak_bytes[tier]).toBeLessThanOrEqual(summary.budget_bytes[tier]);
      }
    }
    for (const phase of ['load', 'save'] as const) {
      expect(plan.peak_bytes_by_phase?.[phase]).toEqual(plan.peak_bytes_by_phase?.update);
    }
    for (const [key, bytes] of Object.entries(smallest)) {
      const less = { ...RUN, ...smallest, [key]: bytes - 1 };
      await expect(planOf(less)).rejects.toMatchObject({
        code: 'BUDGET_TOO_SMALL',
        message: expect.stringMatching(
          new RegExp(`^${key} .* is too small; .* ${bytes} `),
        ) as string,
      });
    }
  });

  it('is what a run does that evaluates larger batches than it trains on', async () => {
    const flags: Flags = {
      ...RUN,
      data_files: rowsOf('more-rows.jsonl', 14),
      per_device_train_batch_size: 1,
      eval_strategy: 'steps',
      eval_steps: 1,
      eval_split: 8,
      per_device_eval_batch_size: 8,
    };
    const planned = await planOf(flags);
    await printed('train', flags);
    const summary = readJson(path('output/summary.json')) as Summary;
    expect(planned.peak_bytes).toEqual(summary.peak_bytes);
    expect(planned.bytes_per_step).toEqual(summary.bytes_moved_per_step);
    const { evaluation, backward } = planned.peak_bytes_by_phase!;
    expect(evaluation!.device).toBeGreaterThan(backward.device);
    expect(planned.peak_bytes.device).toBe(evaluation!.device);
  });

  it('has the keys of docs/OUTPUT.md, in order', async () => {
    const page = readFileSync(new URL('../../docs/OUTPUT.md', import.meta.url), 'utf8');
    const section = /^## `plan --json`$[^]*?(?=^## )/m.exec(page)![0];
    const documented = Array.from(section.matchAll(/^\| `(\w+)` +\|/gm), ([, key]) => key);
    const flags = { ...RUN, 'offload_optimizer.device': 'nvme' };
    const all = JSON.parse(await printed('plan', flags, '--json', '--drive_tbw', '600')) as object;
    expect(Object.keys(all)).toEqual(documented);
    const plan = await planOf(RUN);
    expect(Object.keys(plan)).toEqual(documented.filter((key) => key !== 'drive_life'));
    expect(plan.parameters).toBe(24_544);
    expect(plan.state_bytes).toBe(24_544 * 16);
    expect(plan.budget_bytes).toEqual({ device: 2 ** 21, host: 2 ** 22, nvme: 2 ** 23 });
    expect(Object.keys(plan.homes)).toEqual(['param', 'grad', 'optimizer']);
    for (const shares of Object.values(plan.homes)) {
      expect(Object.keys(shares)).toEqual([...TIERS]);
      expect(shares.device + shares.host + shares.nvme).toBeCloseTo(1, 12);
    }
  });

  it('adds up: phases and kinds of operations to steps, written bytes to the life of a drive', async () => {
    const flags = { ...RUN, 'offload_optimizer.device': 'nvme', 'offload_param.device': 'nvme' };
    const plan = JSON.parse(
      await printed('plan', flags, '--json', '--drive_tbw', '600'),
    ) as PlanReport;
    for (const link of LINKS) {
      const phases = Object.values(plan.bytes_per_step_by_phase);
      const sum = phases.reduce((total, bytes) => total + bytes[link], 0);
      expect(sum).toBe(plan.bytes_per_step[link]);
      const actions = Object.values(plan.bytes_per_step_by_action);
      expect(actions.reduce((total, bytes) => total + bytes[link], 0)).toBe(sum);
    }
    // Without a host home: weights and moments are read and written once by the update at least.
    const states = plan.parameters * 12;
    expect(plan.bytes_per_step_by_phase.update.nvme_write).toBeGreaterThanOrEqual(states);
    expect(plan.bytes_per_step_by_phase.update.nvme_read).toBeGreaterThanOrEqual(states);
    const { update } = plan.bytes_per_step_by_action;
    expect(update?.nvme_write).toBe(plan.bytes_per_step_by_phase.update.nvme_write);
    const written = plan.bytes_per_step.nvme_write;
    expect(plan.nvme_tb_written_per_1000_steps).toBeCloseTo(written / 1e9, 12);
    expect(plan.drive_life?.steps).toBe(Math.floor(600e12 / written));
    const { total, ...lanes } = plan.seconds_per_step;
    expect(total).toBeGreaterThanOrEqual(Math.max(...Object.values(lanes)));
    expect(lanes[plan.limited_by]).toBe(Math.max(...Object.values(lanes)));
    expect(plan.costs).toEqual({
      measured: false,
      defaults: ['copies', 'update', 'nvme', 'compute'],
    });
  });

  it('needs only a config.json, alone or in a folder, and no data', async () => {
    mkdirSync(path('bare'));
    copyFileSync(join(TINY_MODEL, 'config.json'), path('bare/config.json'));
    const expected = await planOf(RUN);
    for (const model of [TINY_MODEL, path('bare'), path('bare/config.json')]) {
      const flags = Object.entries({ ...RUN, model_name_or_path: model });
      const withoutData = flags.filter(([key]) => key !== 'data_files');
      expect(await planOf(Object.fromEntries(withoutData))).toEqual(expected);
    }
  });

  it('is of the longest rows that there may be, and of evaluations where there are any', async () => {
    const ofPositions = await planOf({ ...RUN, max_length: 4096 });
    expect(ofPositions).toEqual(await planOf({ ...RUN, max_length: 40 }));
    const shorter = await planOf({ ...RUN, max_length: 8 });
    expect(shorter.minimum_budgets.device).toBeLessThan(ofPositions.minimum_budgets.device);
    const larger = { ...RUN, per_device_eval_batch_size: 6 };
    expect(await planOf(larger)).toEqual(ofPositions);
    const evaluating = await planOf({ ...larger, eval_strategy: 'steps', eval_split: 2 });
    expect(evaluating.minimum_budgets.device).toBeGreaterThan(ofPositions.minimum_budgets.device);
  });

  it('prints budgets that are enough when they are given as they are printed', async () => {
    // Odd numbers, so that printing them rounds.
    const run = { ...RUN, sub_group_size: 4096, device_memory: 230_001, host_memory: 3_500_003 };
    const table = await printed('plan', run);
    const { minimum_budgets: least, larger_budgets: larger } = await planOf(run);
    const smallest = TIERS.map((tier) => {
      const [, text] = new RegExp(`^${tier} .* ([\\d.]+ [KM]iB)$`, 'm').exec(table)!;
      return [`${tier}_memory`, text!] as const;
    });
    expect((await planOf({ ...run, ...Object.fromEntries(smallest) })).minimum_budgets).toEqual(
      least,
    );
    const told = [...table.matchAll(/^(device|host)_memory ([\d.]+ [KM]iB) would save/gm)];
    expect(told.length).toBe(2);
    // Neither is it kept secret what a larger budget costs.
    expect(larger.device.bytes_saved_per_step.nvme_read).toBeLessThan(0);
    expect(table).toMatch(/^device_memory .* upload, .*, and move more: [\d.]+ KiB nvme read$/m);
    for (const [, tier, text] of told) {
      const given = await planOf({ ...run, [`${tier!}_memory`]: text! });
      const { budget_bytes: bytes } = larger[tier as 'device' | 'host'];
      expect(given.budget_bytes[tier as 'device' | 'host']).toBeGreaterThanOrEqual(bytes);
    }
  });

  it('takes as long as throttled links make it', async () => {
    const run = { ...RUN, 'offload_optimizer.device': 'nvme', 'offload_param.device': 'cpu' };
    const free = await planOf(run);
    for (const link of LINKS) {
      const slow = await planOf({ ...run, [`throttle.${link}`]: 10_000 });
      expect(slow.bytes_per_step).toEqual(free.bytes_per_step);
      const seconds = slow.bytes_per_step[link] / 10_000;
      expect(seconds).toBeGreaterThan(1);
      expect(slow.limited_by).toBe(link);
      // Token ids are counted as bytes, but take no turn on the link.
      expect(slow.seconds_per_step.total / seconds).toBeGreaterThan(0.99);
    }
  });

  it('saves with a larger budget exactly what it says', async () => {
    const run = { ...RUN, sub_group_size: 4096, device_memory: 230_001, host_memory: 3_500_003 };
    const before = await planOf(run);
    for (const tier of ['device', 'host'] as const) {
      const { budget_bytes: bytes, bytes_saved_per_step: saved } = before.larger_budgets[tier];
      const after = await planOf({ ...run, [`${tier}_memory`]: bytes });
      for (const link of LINKS) {
        expect(before.bytes_per_step[link] - after.bytes_per_step[link]).toBe(saved[link]);
      }
      expect(Math.max(...Object.values(saved))).toBeGreaterThan(0);
    }
  });

  it('is a table under either name', async () => {
    const table = await printed('plan', RUN);
    expect(table).toBe(await printed('estimate', RUN));
    const lines = table.split('\n');
    expect(lines[0]).toBe('24,544 parameters, training state 383.5 KiB');
    expect(lines[1]).toBe('micro-batches of 2 x 40 tokens, vertical order');
    expect(lines[3]).toMatch(/^tier +peak +budget +smallest together$/);
    expect(lines.slice(4, 7).map((line) => line.split(' ')[0])).toEqual([...TIERS]);
    expect(lines[8]).toMatch(/^state +device +host +nvme$/);
    expect(lines[9]).toMatch(/^param( +\d+ %){3}$/);
    expect(lines[13]).toMatch(/^step +time +bytes +forward +backward +update$/);
    expect(lines[15]).toMatch(/^upload +[\d.]+ ms( +[\d.]+ [KM]?i?B){4}$/);
    expect(table).toMatch(/\na steady step takes [\d.]+ ms, limited by \w+; \d+ % of the update/);
    expect(table).toMatch(/\ncosts: defaults \(copies, .*\); run spillway tune\n$/);
  });
});

it('reads a configuration file, and notes what the model leaves out of account', async () => {
  const config = JSON.parse(readFileSync(join(TINY_MODEL, 'config.json'), 'utf8')) as object;
  writeFileSync(path('odd.json'), JSON.stringify({ ...config, resid_pdrop: 0.1 }));
  const lines = Object.entries({ ...RUN, model_name_or_path: path('odd.json') });
  writeFileSync(path('run.yaml'), lines.map(([key, value]) => `${key}: ${value}\n`).join(''));
  expect(await runCli(['plan', path('run.yaml'), '--json'])).toBe(0);
  expect(JSON.parse(String(stdout.mock.calls[0]![0]))).toEqual(await planOf(RUN));
  expect(stderr.mock.calls.map(([text]) => String(text)).join('')).toMatch(/^warning: .*pdrop/);
});

it.each([
  [['a.yaml', 'b.yaml'], 'USAGE_INVALID', /one configuration file/],
  [[], 'CONFIG_INVALID', /model_name_or_path is required/],
  [['--max_stpes', '3'], 'CONFIG_UNKNOWN_KEY', /max_steps/],
  [
    [join(TINY_MODEL, 'config.json')],
    'CONFIG_INVALID',
    /config\.json" is the configuration of a model, .* as --model_name_or_path$/,
  ],
  [['--model', path('nothing')], 'MODEL_NOT_FOUND', /nothing/],
  [['--model_name_or_path', path('nothing')], 'MODEL_NOT_FOUND', /nothing/],
  [['--model_name_or_path', folder], 'MODEL_NOT_FOUND', /config\.json/],
  [
    ['--model_name_or_path', TINY_MODEL, '--offload_param.device', 'nvme'],
    'CONFIG_INVALID',
    /nvme_path/,
  ],
  [['--model_name_or_path', TINY_MODEL, '--drive_tbw', 'much'], 'USAGE_INVALID', /drive_tbw/],
  [
    ['--model_name_or_path', TINY_MODEL, '--device', 'webgpu'],
    'DEVICE_UNAVAILABLE',
    /not part of this version/,
  ],
])('refuses %j as %s', async (args, code, message) => {
  await expect(runCli(['plan', ...args])).rejects.toMatchObject({
    code,
    message: expect.stringMatching(message) as string,
  });
  expect(stdout).not.toHaveBeenCalled();
});

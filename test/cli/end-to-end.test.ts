// Goal: training through the built executable: outputs, refusals, full disks, signals.
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  EXECUTABLE,
  TINY_MODEL,
  TINY_VOCABULARY,
  readJson,
  runProcess,
  snapshot,
  train,
  trainArguments,
  workFolder,
  writeJsonl,
  type Flags,
  type Outcome,
} from './end-to-end.js';

const folder = workFolder();
const path = (name: string): string => join(folder, name);

/** Rows of 8 to 19 tokens that repeat a short cycle, which a model learns at once. */
const rows = Array.from({ length: 10 }, (_, row) => ({
  input_ids: Array.from({ length: 8 + ((row * 5) % 12) }, (__, i) => 3 + ((row + i) % 7) * 11),
}));
const data = writeJsonl(path('rows.jsonl'), rows);
const output = path('output');

const withoutNvme: Flags = {
  model_name_or_path: TINY_MODEL,
  data_files: data,
  output_dir: output,
  device_memory: '8MiB',
  host_memory: '16MiB',
  gradient_accumulation_steps: 2,
  max_steps: 6,
  learning_rate: 5e-3,
  logging_steps: 2,
  save_steps: 4,
};
const base: Flags = { ...withoutNvme, nvme_path: path('nvme'), nvme_memory: '64MiB' };
const STEP_COUNT = 6;

/** One line `error: CODE: …; …` on standard error, nothing else, nothing on standard output. */
function expectRefusal(outcome: Outcome, status: number, code: string): void {
  expect(outcome.stderr).toMatch(new RegExp(`^error: ${code}: [^\\n]+\\n$`));
  expect(outcome.status).toBe(status);
  expect(outcome.stdout).toBe('');
}

let first: Outcome;
beforeAll(async () => {
  first = await train(base);
});

describe('a training run', () => {
  interface Record {
    readonly step: number;
    readonly loss: number;
    readonly num_tokens: number;
    readonly learning_rate: number;
  }

  const records = (): Record[] =>
    readFileSync(join(output, 'metrics.jsonl'), 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record);

  it('ends with status 0, a silent standard error and its totals on standard output', () => {
    expect(first.stderr).toBe('');
    expect(first.status).toBe(0);
    for (const text of ['training state', 'budgets:', 'step 6/6', `model saved in ${output}\n`]) {
      expect(first.stdout).toContain(text);
    }
    expect(first.stdout).toMatch(/^tier +peak +budget\ndevice .* 8 MiB\nhost .* 16 MiB\nnvme /m);
    expect(first.stdout).toMatch(/^link +moved +per step\nupload .*\ndownload /m);
  });

  it('writes one metrics line per logging step, step first, with a falling loss', () => {
    const lines = records();
    expect(lines.map((record) => record.step)).toEqual([2, 4, 6]);
    for (const record of lines) {
      expect(Object.keys(record)).toEqual([
        'step',
        'loss',
        'grad_norm',
        'learning_rate',
        'epoch',
        'num_tokens',
        'spillway/step_seconds',
      ]);
    }
    expect(lines[2]!.loss).toBeLessThan(lines[0]!.loss - 0.5);
    // Linear decay: step s of 6 uses the factor (6 - (s - 1)) / 6.
    expect(lines.map((record) => record.learning_rate / 5e-3)).toEqual(
      [5 / 6, 3 / 6, 1 / 6].map((factor) => expect.closeTo(factor, 9) as number),
    );
  });

  it('writes a summary of all totals, with peaks within budgets', () => {
    const summary = readJson(join(output, 'summary.json')) as {
      [key: string]: unknown;
      train_loss: number;
      num_tokens: number;
      peak_bytes: { [tier: string]: number };
      bytes_moved: { [link: string]: number };
    };
    expect(Object.keys(summary)).toEqual([
      'train_loss',
      'global_step',
      'num_tokens',
      'train_runtime',
      'peak_bytes',
      'budget_bytes',
      'bytes_moved',
      'bytes_moved_per_step',
      'planned',
      'cpu_fallbacks',
      'peak_rss_bytes',
    ]);
    expect(summary['global_step']).toBe(STEP_COUNT);
    expect(summary['budget_bytes']).toEqual({ device: 2 ** 23, host: 2 ** 24, nvme: 2 ** 26 });
    const { device, host, nvme } = summary.peak_bytes;
    expect(device! > 0 && device! <= 2 ** 23).toBe(true);
    expect(host! > 0 && host! <= 2 ** 24).toBe(true);
    expect(nvme! >= 0 && nvme! <= 2 ** 26).toBe(true);
    expect(Object.keys(summary.bytes_moved)).toEqual([
      'upload',
      'download',
      'nvme_read',
      'nvme_write',
    ]);
    const lines = records();
    const mean = lines.reduce((sum, record) => sum + record.loss, 0) / lines.length;
    expect(summary.train_loss).toBeCloseTo(mean, 12);
    // 6 steps of 2 rows: each of the 10 rows once, and two of them again.
    const whole = rows.reduce((sum, row) => sum + row.input_ids.length, 0);
    expect(summary.num_tokens).toBeGreaterThanOrEqual(whole + 2 * 8);
    expect(summary.num_tokens).toBeLessThanOrEqual(whole + 2 * 19);
    expect(lines[2]!.num_tokens).toBe(summary.num_tokens);
  });

  it('leaves the final model, checkpoints of the save steps and of the last, and no files of the run', () => {
    expect(readdirSync(output).sort()).toEqual([
      'checkpoint-4',
      'checkpoint-6',
      'config.json',
      'metrics.jsonl',
      'model.safetensors',
      'summary.json',
    ]);
    expect(readdirSync(join(output, 'checkpoint-6')).sort()).toEqual([
      'config.json',
      'model.safetensors',
      'optimizer.safetensors',
      'spillway.json',
      'trainer_state.json',
    ]);
    const weights = (name: string) => readFileSync(join(output, name, 'model.safetensors'));
    expect(weights('.').equals(weights('checkpoint-6'))).toBe(true);
    expect(weights('.').equals(weights('checkpoint-4'))).toBe(false);
    const state = readJson(join(output, 'checkpoint-4/trainer_state.json'));
    expect(state).toMatchObject({ global_step: 4, max_steps: STEP_COUNT });
    expect(existsSync(path('nvme')) ? readdirSync(path('nvme')) : []).toEqual([]);
  });

  it('goes on from the folder that it wrote', async () => {
    const flags = { ...base, model_name_or_path: output, output_dir: path('second') };
    const outcome = await train({ ...flags, max_steps: 1, logging_steps: 1, save_strategy: 'no' });
    expect(outcome).toMatchObject({ status: 0, stderr: '' });
    const [line = ''] = readFileSync(path('second/metrics.jsonl'), 'utf8').split('\n');
    expect((JSON.parse(line) as Record).loss).toBeLessThan(records()[0]!.loss - 0.5);
  });
});

describe('budgets', () => {
  it('are refused with the smallest that work; those train to the same bits, a byte less is refused', async () => {
    const tiny = { ...base, device_memory: 1, host_memory: 1, nvme_memory: 1 };
    const outcome = await train(tiny);
    expectRefusal(outcome, 2, 'BUDGET_TOO_SMALL');
    const sizes = [...outcome.stderr.matchAll(/the smallest that works is (\d+) /g)];
    const [device, host, nvme] = sizes.map((match) => Number(match[1]));
    const smallest = { device_memory: device!, host_memory: host!, nvme_memory: nvme! };
    const flags = { ...base, ...smallest, output_dir: path('smallest') };
    const [works, ...refused] = await Promise.all([
      train(flags),
      ...Object.entries(smallest).map(([key, bytes]) =>
        train({ ...flags, [key]: bytes - 1, output_dir: path(`less-${key}`) }),
      ),
    ]);
    expect(works).toMatchObject({ status: 0, stderr: '' });
    for (const one of refused) expectRefusal(one, 2, 'BUDGET_TOO_SMALL');
    refused.forEach((one, index) => {
      const [key, bytes] = Object.entries(smallest)[index]!;
      expect(one.stderr).toMatch(new RegExp(`${key} .* is too small; .* ${bytes} `));
    });
    const summary = readJson(path('smallest/summary.json')) as {
      peak_bytes: object;
      bytes_moved: { nvme_read: number };
    };
    expect(summary.bytes_moved.nvme_read).toBeGreaterThan(0);
    const weights = [output, path('smallest')].map((run) =>
      readFileSync(join(run, 'model.safetensors')),
    );
    expect(weights[0]!.equals(weights[1]!)).toBe(true);
  });
});

/** A copy of the tiny model whose weights file is `change`d. */
function damagedModel(name: string, change: (file: Buffer) => Buffer): string {
  const model = path(name);
  mkdirSync(model);
  copyFileSync(join(TINY_MODEL, 'config.json'), join(model, 'config.json'));
  const weights = readFileSync(join(TINY_MODEL, 'model.safetensors'));
  writeFileSync(join(model, 'model.safetensors'), change(weights));
  return model;
}

describe('a refusal', () => {
  const cases: readonly (readonly [string, string, () => Flags, RegExp])[] = [
    [
      'a missing model folder',
      'MODEL_NOT_FOUND',
      () => ({ model_name_or_path: path('nothing') }),
      /nothing/,
    ],
    [
      'a truncated weights file',
      'CHECKPOINT_CORRUPT',
      () => ({
        model_name_or_path: damagedModel('truncated', (file) => file.subarray(0, -100)),
      }),
      /model\.safetensors/,
    ],
    [
      'an impossible header length',
      'CHECKPOINT_CORRUPT',
      () => ({
        model_name_or_path: damagedModel('header', (file) => {
          file.writeBigUInt64LE(2n ** 60n, 0);
          return file;
        }),
      }),
      /model\.safetensors/,
    ],
    ['an unknown key', 'CONFIG_UNKNOWN_KEY', () => ({ max_stpes: 3 }), /did you mean "max_steps"/],
    [
      'a bad byte size',
      'BYTE_SIZE_INVALID',
      () => ({ host_memory: '8GiBs' }),
      /"8GiBs" is not a byte size/,
    ],
    [
      'a token id beyond the vocabulary',
      'TOKEN_OUT_OF_RANGE',
      () => ({
        data_files: writeJsonl(path('range.jsonl'), [
          ...rows,
          { input_ids: [1, 2, TINY_VOCABULARY] },
        ]),
      }),
      /131/,
    ],
    [
      'a negative token id',
      'TOKEN_OUT_OF_RANGE',
      () => ({ data_files: writeJsonl(path('negative.jsonl'), [{ input_ids: [1, -1] }]) }),
      /-1/,
    ],
    [
      'an empty data set',
      'DATA_EMPTY',
      () => ({ data_files: writeJsonl(path('empty.jsonl'), []) }),
      /empty\.jsonl|no rows?/,
    ],
    [
      'a missing data file',
      'DATA_NOT_FOUND',
      () => ({ data_files: path('nothing.jsonl') }),
      /nothing\.jsonl/,
    ],
    [
      // A path below a file cannot be made, not even by root.
      'an output folder that cannot be made',
      'PATH_UNWRITABLE',
      () => ({ output_dir: '/dev/null/output' }),
      /\/dev\/null\/output/,
    ],
    [
      'an NVMe folder that cannot be made',
      'PATH_UNWRITABLE',
      () => ({ nvme_path: '/dev/null/nvme', 'offload_param.device': 'nvme' }),
      /\/dev\/null\/nvme/,
    ],
  ];

  it.each(cases)('of %s is one line with %s and status 2, and harms nothing', async (...test) => {
    const [, code, change, message] = test;
    const before = snapshot(output);
    const outcome = await train({ ...base, ...change() });
    expectRefusal(outcome, 2, code);
    expect(outcome.stderr).toMatch(message);
    expect(snapshot(output)).toEqual(before);
  });

  it('shows the stack with --debug', async () => {
    const outcome = await train({ ...base, data_files: path('nothing.jsonl') }, '--debug');
    expect(outcome.status).toBe(2);
    expect(outcome.stderr).toMatch(/^error: DATA_NOT_FOUND: [^\n]+\n.*\n +at /s);
  });
});

describe('a full disk', () => {
  const command = (flags: Flags): string =>
    [process.execPath, EXECUTABLE, ...trainArguments(flags)]
      .map((word) => `'${word.replaceAll("'", "'\\''")}'`)
      .join(' ');

  /** Runs train with at most `bytes` per file: writes beyond fail with EFBIG. */
  const trainWithFileLimit = (bytes: number, flags: Flags): Promise<Outcome> =>
    runProcess('bash', ['-c', `ulimit -f ${bytes / 1024}; exec ${command(flags)}`]);

  it('while saving ends with OUTPUT_FULL, status 1 and the earlier save intact', async () => {
    // The metrics of the run that fails replace the earlier run's; the models stay.
    const skip = (name: string): boolean => name === 'metrics.jsonl';
    const before = snapshot(output, skip);
    const outcome = await trainWithFileLimit(32 * 1024, withoutNvme);
    expect(outcome.stderr).toMatch(/^error: OUTPUT_FULL: [^\n]+errno=EFBIG[^\n]*\n$/);
    expect(outcome.status).toBe(1);
    expect(snapshot(output, skip)).toEqual(before);
  });

  // A file system of 128 KiB, in a mount namespace of its own, where the kernel allows one.
  const namespace = ['-rm', 'bash', '-c', 'mount -t tmpfs -o size=4k none /mnt'];
  const canMount = spawnSync('unshare', namespace).status === 0;

  it.runIf(canMount)('below nvme_path ends with NVME_FULL, status 1', async () => {
    const disk = path('disk');
    mkdirSync(disk);
    const flags = {
      ...base,
      'offload_optimizer.device': 'nvme',
      nvme_path: join(disk, 'nvme'),
      output_dir: path('no-output'),
    };
    const script = `mount -t tmpfs -o size=128k none '${disk}' && exec ${command(flags)}`;
    const outcome = await runProcess('unshare', ['-rm', 'bash', '-c', script]);
    expect(outcome.stderr).toMatch(/^(warning: [^\n]+\n)*error: NVME_FULL: [^\n]+\n$/);
    expect(outcome.status).toBe(1);
  });

  it.runIf(canMount)(
    'of the output ends with OUTPUT_FULL, status 1, its metrics kept',
    async () => {
      const disk = path('output-disk');
      mkdirSync(disk);
      const flags = { ...base, output_dir: join(disk, 'run') };
      const script = `mount -t tmpfs -o size=128k none '${disk}' && ${command(flags)}
      status=$?; cat '${disk}/run/metrics.jsonl'; ls -A '${disk}/run'; exit $status`;
      const outcome = await runProcess('unshare', ['-rm', 'bash', '-c', script]);
      expect(outcome.stderr).toMatch(/^error: OUTPUT_FULL: [^\n]+errno=ENOSPC[^\n]*\n$/);
      expect(outcome.status).toBe(1);
      // Steps before the failed checkpoint-4 are acknowledged; no half checkpoint stays.
      expect(outcome.stdout).toMatch(/\{"step":4,[^\n]*\}\nmetrics\.jsonl\n$/);
    },
  );
});

it('a signal stops the run with a checkpoint of the step under way', async () => {
  const run = path('stopped');
  const flags = { ...base, output_dir: run, max_steps: 100_000, logging_steps: 1 };
  const args = [EXECUTABLE, ...trainArguments({ ...flags, save_steps: 100_000 })];
  const outcome = await runProcess(process.execPath, args, (child) => {
    child.stdout!.once('data', () => child.kill('SIGTERM'));
  });
  expect(outcome.status).toBe(143);
  expect(outcome.stderr).toMatch(/^SIGTERM: [^\n]+\n$/);
  const step = /stopped after step (\d+)/.exec(outcome.stdout)?.[1];
  expect(readdirSync(run).sort()).toEqual([`checkpoint-${step}`, 'metrics.jsonl']);
  const lines = readFileSync(join(run, 'metrics.jsonl'), 'utf8').trimEnd().split('\n');
  expect(lines).toHaveLength(Number(step));
});

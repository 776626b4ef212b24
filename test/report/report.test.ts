// Goal: the page of a run is well formed, says the run's numbers, asks nobody for anything and shows
// whatever names files hold as text; what is no run is refused by code.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { formatBytes } from '../../core/bytes.js';
import { LANES, LINKS, TIERS } from '../../core/types.js';
import { writeReport } from '../../src/report/write-report.js';
import type { RunSummary } from '../../src/train/run-reporter.js';
import { SUMMARY, recordOf } from '../cli/reporters/recorded-run.js';
import { TINY_MODEL, cyclicRows, train, workFolder, writeJsonl } from '../train/train-run.js';
import { checkPage, type CheckedPage } from './check-page.js';

const folder = workFolder();
const path = (name: string): string => join(folder, name);

async function reportOf(name: string, trace?: string): Promise<CheckedPage> {
  return checkPage(readFileSync(await writeReport({ folder: path(name), trace }), 'utf8'));
}

const json = (value: unknown): string => JSON.stringify(value);

/** A folder with these files. */
function folderWith(name: string, files: Readonly<Record<string, string>>): string {
  rmSync(path(name), { recursive: true, force: true });
  mkdirSync(path(name));
  for (const [file, text] of Object.entries(files)) writeFileSync(join(path(name), file), text);
  return path(name);
}

const EVALUATED = { step: 4, eval_loss: 3.5 };
const METRICS = [recordOf(2), recordOf(4), EVALUATED, recordOf(6)].map((one) => `${json(one)}\n`);

describe('the page of a run', () => {
  const output = path('output');
  let summary: RunSummary;
  let page: CheckedPage;
  beforeAll(async () => {
    const told = await train({
      model_name_or_path: TINY_MODEL,
      data_files: writeJsonl(path('rows.jsonl'), cyclicRows(12)),
      eval_split: 4,
      eval_strategy: 'steps',
      eval_steps: 2,
      output_dir: output,
      device_memory: '4MiB',
      host_memory: '24MiB',
      nvme_path: path('nvme'),
      nvme_memory: '64MiB',
      'offload_optimizer.device': 'nvme',
      max_steps: 4,
      logging_steps: 1,
      save_strategy: 'no',
      trace: join(output, 'trace.json'),
    });
    summary = told.summary!;
    page = await reportOf('output');
  });

  it('says the facts of the run', () => {
    for (const fact of [
      'model gpt2',
      'steps 4',
      `tokens ${summary.num_tokens.toLocaleString('en-US')}`,
      `training loss ${Number(summary.train_loss.toPrecision(6))}`,
      `evaluation loss ${Number(summary.eval_loss!.toPrecision(6))}`,
      `peak memory of the process ${formatBytes(summary.peak_rss_bytes)}`,
    ]) {
      expect(page.text).toContain(fact);
    }
  });

  it('sets what was predicted beside what was measured', () => {
    const { planned, bytes_moved_per_step: moved, bytes_moved: all } = summary;
    for (const link of LINKS) {
      const cells = [planned!.bytes_per_step[link], moved![link]].map(formatBytes);
      const difference = '(none|-?[\\d,]+ B(, -?[\\d.]+ %)?)';
      const row = `${link} ${cells.join(' ')} ${difference} ${formatBytes(all[link])} `;
      expect(page.text).toMatch(new RegExp(row));
    }
    for (const tier of TIERS) {
      const cells = [planned!.peak_bytes[tier], summary.peak_bytes[tier]].map(formatBytes);
      expect(page.text).toContain(`${tier} ${cells.join(' ')} `);
      expect(page.text).toContain(`${tier}, budget ${formatBytes(summary.budget_bytes[tier])}`);
    }
  });

  it('draws losses, a step and the bytes held', () => {
    // Loss, learning rate, gradient norm, seconds; the step; three tiers.
    expect(page.counts.get('svg')).toBe(8);
    // Four training and two evaluation points, and three charts of four.
    expect(page.counts.get('circle')).toBeGreaterThanOrEqual(6 + 3 * 4);
    expect(page.text).toContain('Step 2, lane by lane');
    for (const lane of LANES) expect(page.text).toContain(` ${lane} `);
    expect(page.text).toMatch(/compute stands still for [\d.]+ ms of it, [\d.]+ %/);
  });

  it('asks nobody for anything', () => {
    const text = readFileSync(join(output, 'report.html'), 'utf8');
    expect(text).not.toMatch(/https?:|\/\/|src=|href=|url\(|@import|<script|<link|<img|\son\w+=/i);
    expect(text).toContain(`content="default-src 'none'; style-src 'unsafe-inline'"`);
  });

  it('without a trace says how to get one', async () => {
    const out = path('other/page.html');
    mkdirSync(path('other'));
    const bare = folderWith('bare', {
      'metrics.jsonl': METRICS.join(''),
      'summary.json': json(SUMMARY),
    });
    expect(await writeReport({ folder: bare, out })).toBe(out);
    const { text, counts } = checkPage(readFileSync(out, 'utf8'));
    expect(text).toContain(`Train with --trace ${join(bare, 'trace.json')} `);
    expect(counts.get('svg')).toBe(4);
  });

  it('takes a trace from elsewhere', async () => {
    folderWith('elsewhere', { 'metrics.jsonl': METRICS.join('') });
    const { text } = await reportOf('elsewhere', join(output, 'trace.json'));
    expect(text).toContain('Step 2, lane by lane');
    expect(text).toContain('not finished');
  });
});

it('a difference between plan and measurement is said in bytes and per cent', async () => {
  const { bytes_per_step: planned } = SUMMARY.planned!;
  const bytes_moved_per_step = { ...planned, upload: planned.upload + 2 ** 21, nvme_write: 7 };
  folderWith('differs', { 'summary.json': json({ ...SUMMARY, bytes_moved_per_step }) });
  const { text } = await reportOf('differs');
  expect(text).toContain('upload 2 GiB 2 GiB 2,097,152 B, 0.10 % 12 GiB');
  expect(text).toContain('download 1 GiB 1 GiB none 6 GiB');
  expect(text).toContain('nvme_write 0 B 7 B 7 B 0 B');
});

it('numbers that JSON lacks are left out', async () => {
  const lines = [
    { ...recordOf(1), loss: null },
    { ...recordOf(2), loss: null, grad_norm: null },
  ];
  const files = { 'metrics.jsonl': lines.map((one) => `${json(one)}\n`).join('') };
  folderWith('lacking', { ...files, 'summary.json': json({ ...SUMMARY, train_loss: null }) });
  const { text, counts } = await reportOf('lacking');
  expect(text).toContain('training loss not a number');
  // No loss chart is left.
  expect(counts.get('svg')).toBe(3);
});

it('the half line of a run that writes, and the half trace of a killed one, are forgiven', async () => {
  const trace = `{"displayTimeUnit":"ms","otherData":{},"traceEvents":[\n${json({ ph: 'X', name: 'step 1', cat: 'step', ts: 0, dur: 5, args: { step: 1 } })},\n{"ph":"X","na`;
  folderWith('half', {
    'metrics.jsonl': `${METRICS.join('')}{"step": 8, "lo`,
    'trace.json': trace,
  });
  const { text } = await reportOf('half');
  expect(text).toContain('last step 6');
  expect(text).toContain('Step 1, lane by lane');
});

it('hostile names are shown as text', async () => {
  const hostile = `</title></style><script src=//x>alert(1)</script><img onerror='a()' a="\`&amp;\u0000\ud800`;
  const slice = {
    ph: 'X',
    name: hostile,
    cat: 'compute',
    ts: 1,
    dur: 2,
    args: { phase: 'forward' },
  };
  const step = { ph: 'X', name: hostile, cat: 'step', ts: 0, dur: 5, args: { step: 1 } };
  const name = `a<b>"'&`;
  folderWith(name, {
    'metrics.jsonl': METRICS.join(''),
    'summary.json': json({ ...SUMMARY, best_model_checkpoint: hostile, best_metric: 1 }),
    'config.json': json({ model_type: hostile, n_layer: [hostile], vocab_size: hostile }),
    'trace.json': `{"displayTimeUnit":"ms","otherData":{},"traceEvents":[\n${json(slice)},\n${json(step)}\n]}\n`,
  });
  const { text, counts } = await reportOf(name);
  const shown = hostile.replaceAll(/[\0\ud800]/g, '\ufffd');
  expect(text).toContain(`model ${shown}`);
  expect(text).toContain(`best checkpoint ${shown}`);
  expect(text).toContain(`${shown}, 0.002 ms`);
  expect(text).toContain(path(name));
  expect(counts.get('style')).toBe(1);
});

const X = { ph: 'X', name: 'step 1', cat: 'step', args: { step: 1 } };
const traceOf = (...events: readonly object[]): string =>
  `{"displayTimeUnit":"ms","otherData":{},"traceEvents":[\n${events.map(json).join(',\n')}\n]}\n`;

const REFUSED: readonly (readonly [string, string, Readonly<Record<string, string>>?])[] = [
  ['a folder that is not there', 'RUN_NOT_FOUND'],
  ['an empty folder', 'RUN_NOT_FOUND', {}],
  ['a trace without a step', 'RUN_NOT_FOUND', { 'trace.json': traceOf() }],
  ['a line that is no JSON', 'RUN_CORRUPT', { 'metrics.jsonl': `{"step": 1, "lo\n${METRICS[0]}` }],
  ['a line that is no record', 'RUN_CORRUPT', { 'metrics.jsonl': '{"step": "one"}\n' }],
  ['a line that is an array', 'RUN_CORRUPT', { 'metrics.jsonl': '[]\n' }],
  ['a line that is not UTF-8', 'DATA_INVALID', { 'metrics.jsonl': '\xff' }],
  ['a summary that is no JSON', 'RUN_CORRUPT', { 'summary.json': '{' }],
  ['another summary', 'RUN_CORRUPT', { 'summary.json': '{"train_loss": "low"}' }],
  ['another trace', 'RUN_CORRUPT', { 'trace.json': '[{"ph": "X"}]' }],
  ['a slice without a time', 'RUN_CORRUPT', { 'trace.json': traceOf({ ...X, ts: 1 }) }],
  ['a trace with a line that is no event', 'RUN_CORRUPT', { 'trace.json': `${traceOf()}x\ny` }],
];

it.each(REFUSED)('%s is refused as %s', async (_, code, files) => {
  if (files === undefined) rmSync(path('refused'), { recursive: true, force: true });
  else folderWith('refused', {});
  for (const [name, text] of Object.entries(files ?? {})) {
    writeFileSync(path(`refused/${name}`), text, 'latin1');
  }
  const refused = expect(writeReport({ folder: path('refused') })).rejects;
  await refused.toMatchObject({ code, message: expect.stringMatching(/;/) as string });
});

it('a trace that was asked for and a page that cannot be written are refused', async () => {
  const run = folderWith('asked', { 'metrics.jsonl': METRICS.join('') });
  const trace = path('no-trace.json');
  await expect(writeReport({ folder: run, trace })).rejects.toMatchObject({
    code: 'RUN_NOT_FOUND',
  });
  const out = path('nowhere/page.html');
  await expect(writeReport({ folder: run, out })).rejects.toMatchObject({
    code: 'PATH_UNWRITABLE',
  });
});

// Goal: the page of a run is well formed, says the run's numbers, asks nobody for anything and shows
// whatever names files hold as text; what is no run is refused by code.
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
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
      const budget = formatBytes(summary.budget_bytes[tier]);
      // Far above what is held it is named, else drawn.
      expect(page.text).toMatch(new RegExp(`${tier}(,| ) ?budget ${budget}`));
    }
  });

  it('draws losses, a step and the bytes held, and tells them to those who do not see', () => {
    // Loss, learning rate, gradient norm, seconds; the step; three tiers.
    expect(page.labels.map((label) => /^[^.,;]+/.exec(label)![0])).toEqual([
      'Loss',
      'Learning rate',
      'Gradient norm',
      'Seconds per step',
      'Step 1',
      ...TIERS,
    ]);
    expect(page.labels[0]).toMatch(
      /^Loss\. training loss: \S+ at step 1, \S+ at 4, between \S+ and \S+\. evaluation loss: /,
    );
    // Four training and two evaluation points, and three charts of four.
    expect(page.counts.get('circle')).toBe(6 + 3 * 4);
    // A table for each chart.
    expect(page.counts.get('details')).toBe(7);
    for (const lane of LANES) expect(page.text).toContain(` ${lane} `);
  });

  it('says where the time of the step went, and what was predicted of it', () => {
    const { text } = page;
    // An evaluation follows step 2, and nothing step 3.
    expect(text).toMatch(
      /Steps 1 to 3 were recorded\. Step 1 is shown, until the next one begins: /,
    );
    const spent = /compute time of the step (.*?) Lanes and overlap/.exec(text)![1]!;
    const shares = Array.from(spent.matchAll(/([\d.]+) %/g), ([, share]) => Number(share));
    expect(shares.length).toBeGreaterThan(2);
    expect(shares.reduce((sum, share) => sum + share, 0)).toBeCloseTo(100, 0);
    expect(spent).toMatch(/works [\d.]+ (µs|ms|s) [\d.]+ %/);
    expect(text).toMatch(/whole step [\d.]+ (ms|s) [\d.]+ (ms|s) [\d.,]+ ×/);
    expect(text).toMatch(/compute [\d.]+ (µs|ms) [\d.]+ (ms|s) [\d.,]+ ×/);
    expect(text).toMatch(/Costs of [a-z, ]+ are defaults|that spillway tune measured/);
    expect(text).toMatch(/waits for (upload|nvme_read|update): \S+/);
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
    expect(text).not.toContain('Bytes held');
  });

  it('takes a trace from elsewhere', async () => {
    folderWith('elsewhere', { 'metrics.jsonl': METRICS.join('') });
    const { text } = await reportOf('elsewhere', join(output, 'trace.json'));
    expect(text).toContain('Step 1, lane by lane');
    expect(text).toContain('not finished');
    // Budgets come from the trace then.
    expect(text).toContain(`budget ${formatBytes(summary.budget_bytes.device)}`);
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
  const { text, labels } = await reportOf('lacking');
  expect(text).toContain('training loss not a number');
  expect(text).toContain('The loss is not a number 2 times, the first at step 1.');
  expect(labels.map((label) => /^\w+/.exec(label)![0])).toEqual([
    'Learning',
    'Gradient',
    'Seconds',
  ]);
});

it('the half line of a run that writes, and the half trace of a killed one, are forgiven', async () => {
  const trace = `{"displayTimeUnit":"ms","otherData":{},"traceEvents":[\n${json({ ph: 'X', pid: 1, name: 'step 1', cat: 'step', ts: 0, dur: 5, args: { step: 1 } })},\n{"ph":"X","na`;
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
  const X = { ph: 'X', pid: 1, name: hostile };
  const slice = { ...X, cat: 'compute', ts: 1, dur: 2, args: { phase: 'forward' } };
  const stall = { ...X, cat: 'stall', ts: 0, dur: 1, args: { step: 1, lane: hostile } };
  const step = { ...X, cat: 'step', ts: 0, dur: 5, args: { step: 1 } };
  const head = { device: hostile, budget_bytes: { device: 1 }, default_costs: [hostile] };
  const name = `a<b>"'&`;
  folderWith(name, {
    'metrics.jsonl': METRICS.join(''),
    'summary.json': json({ ...SUMMARY, best_model_checkpoint: hostile, best_metric: 1 }),
    'config.json': json({ model_type: hostile, n_layer: [hostile], vocab_size: hostile }),
    'trace.json': `{"displayTimeUnit":"ms","otherData":${json(head)},"traceEvents":[\n${[slice, stall, step].map(json).join(',\n')}\n]}\n`,
  });
  const { text, counts } = await reportOf(name);
  const shown = hostile.replaceAll(/[\0\ud800]/g, '\ufffd');
  expect(text).toContain(`model ${shown}`);
  expect(text).toContain(`best checkpoint ${shown}`);
  expect(text).toContain(`${shown}, 2 µs`);
  expect(text).toContain(`${shown} 1 1 µs 20 % 1 µs`);
  expect(text).toContain(path(name));
  expect(counts.get('style')).toBe(1);
});

const X = { ph: 'X', pid: 1, name: 'step 1', cat: 'step', args: { step: 1 } };
const traceOfAll = (events: readonly object[]): string =>
  `{"displayTimeUnit":"ms","otherData":{},"traceEvents":[\n${events.map(json).join(',\n')}\n]}\n`;
const traceOf = (...events: readonly object[]): string => traceOfAll(events);
const folderIn = Symbol('a folder');

type Content = string | typeof folderIn;

const REFUSED: readonly (readonly [string, string, Readonly<Record<string, Content>>?])[] = [
  ['a folder that is not there', 'RUN_NOT_FOUND'],
  ['an empty folder', 'RUN_NOT_FOUND', {}],
  ['a trace without a step', 'RUN_NOT_FOUND', { 'trace.json': traceOf() }],
  ['an empty trace', 'RUN_NOT_FOUND', { 'trace.json': '' }],
  ['a line that is no JSON', 'RUN_CORRUPT', { 'metrics.jsonl': `{"step": 1, "lo\n${METRICS[0]}` }],
  ['a line that is no record', 'RUN_CORRUPT', { 'metrics.jsonl': '{"step": "one"}\n' }],
  ['a step beyond numbers', 'RUN_CORRUPT', { 'metrics.jsonl': '{"step": 1e999}\n' }],
  ['a loss that is text', 'RUN_CORRUPT', { 'metrics.jsonl': '{"step": 1, "loss": "low"}\n' }],
  ['a line that is an array', 'RUN_CORRUPT', { 'metrics.jsonl': '[]\n' }],
  ['a line that is null', 'RUN_CORRUPT', { 'metrics.jsonl': 'null\n' }],
  ['a line that is not UTF-8', 'RUN_CORRUPT', { 'metrics.jsonl': '\xff' }],
  ['an endless line', 'RUN_CORRUPT', { 'metrics.jsonl': '1'.repeat(2 ** 20 + 1) }],
  ['metrics that are a folder', 'RUN_CORRUPT', { 'metrics.jsonl': folderIn }],
  ['a summary that is no JSON', 'RUN_CORRUPT', { 'summary.json': '{' }],
  ['another summary', 'RUN_CORRUPT', { 'summary.json': '{"train_loss": "low"}' }],
  ['a summary that is a folder', 'RUN_CORRUPT', { 'summary.json': folderIn }],
  ['a summary that is too large', 'RUN_CORRUPT', { 'summary.json': ' '.repeat(2 ** 20 + 1) }],
  ['a configuration that is a folder', 'RUN_CORRUPT', { 'config.json': folderIn }],
  ['another trace', 'RUN_CORRUPT', { 'trace.json': '[{"ph": "X"}]' }],
  ['a trace with another head', 'RUN_CORRUPT', { 'trace.json': `${traceOf().slice(0, 40)}\n` }],
  ['a slice without a time', 'RUN_CORRUPT', { 'trace.json': traceOf({ ...X, ts: 1 }) }],
  ['a slice beyond time', 'RUN_CORRUPT', { 'trace.json': traceOf({ ...X, ts: 1, dur: 1e300 }) }],
  [
    'a trace with a line that is no event',
    'RUN_CORRUPT',
    { 'trace.json': `${traceOf({ ...X, ts: 1, dur: 1 })}x\ny` },
  ],
  ['a trace that is a folder', 'RUN_CORRUPT', { 'trace.json': folderIn }],
];

it.each(REFUSED)('%s is refused as %s', async (_, code, files) => {
  rmSync(path('refused'), { recursive: true, force: true });
  if (files !== undefined) mkdirSync(path('refused'));
  for (const [name, content] of Object.entries(files ?? {})) {
    const file = path(`refused/${name}`);
    if (typeof content === 'string') writeFileSync(file, content, 'latin1');
    else mkdirSync(file);
  }
  const refused = expect(writeReport({ folder: path('refused') })).rejects;
  await refused.toMatchObject({
    name: 'SpillwayError',
    code,
    message: expect.stringMatching(/;/) as string,
  });
  expect(existsSync(path('refused/report.html'))).toBe(false);
});

it('a trace that was asked for and a page that cannot be written are refused', async () => {
  const run = folderWith('asked', { 'metrics.jsonl': METRICS.join('') });
  const trace = path('no-trace.json');
  const refused = { code: 'RUN_NOT_FOUND' };
  await expect(writeReport({ folder: run, trace })).rejects.toMatchObject({
    ...refused,
    message: `${trace} is not there; give the file that train --trace wrote`,
  });
  writeFileSync(trace, traceOf());
  await expect(writeReport({ folder: run, trace })).rejects.toMatchObject({
    ...refused,
    message: `${trace} holds no complete step; give the file that train --trace wrote`,
  });
  const out = path('nowhere/page.html');
  await expect(writeReport({ folder: run, out })).rejects.toMatchObject({
    code: 'PATH_UNWRITABLE',
  });
});

it('a run of any length gives a page of bounded size, in bounded memory', async () => {
  const run = folderWith('long', {});
  const lines = 200_000;
  const file = openSync(join(run, 'metrics.jsonl'), 'w');
  for (let step = 1; step <= lines; step += 1000) {
    const some = Array.from({ length: 1000 }, (_, index) => recordOf(step + index));
    writeSync(file, some.map((one) => `${json({ ...one, loss: 1 / one.step })}\n`).join(''));
  }
  closeSync(file);
  // A step of as many pieces, and as many readings of what is held.
  const events: object[] = [];
  for (let at = 0; at < 50_000; at += 1) {
    const times = { pid: 1, ts: at * 10, name: `forward ${at}` };
    const args = { step: 1, phase: 'forward' };
    events.push({ ph: 'X', ...times, cat: 'compute', dur: 5, args });
    events.push({ ph: 'X', ...times, ts: at * 10 + 5, cat: 'stall', dur: 5, args: { step: 1 } });
    events.push({ ph: 'C', ...times, name: 'device', args: { bytes: at } });
  }
  const steps = [0, 500_000].map((ts, index) => ({ ...X, ts, dur: 1, args: { step: index + 1 } }));
  writeFileSync(join(run, 'trace.json'), traceOfAll([...events, ...steps]));
  const before = process.memoryUsage.rss();
  const { text, counts } = await reportOf('long');
  expect(process.memoryUsage.rss() - before).toBeLessThan(300 * 2 ** 20);
  expect(readFileSync(join(run, 'report.html')).length).toBeLessThan(2 ** 20);
  expect(text).toContain(`last step ${lines.toLocaleString('en-US')}`);
  expect(text).toContain(`${lines.toLocaleString('en-US')} lines are drawn as means`);
  expect(text).toContain('works 250 ms 50 %');
  expect(counts.get('rect')).toBeLessThan(3000);
}, 30_000);

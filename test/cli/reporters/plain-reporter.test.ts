// Goal: a run as plain lines: what is printed, in which order, and how rarely.
import { expect, it } from 'vitest';
import { PlainReporter } from '../../../src/cli/reporters/plain-reporter.js';
import { RunTotals } from '../../../src/cli/reporters/run-totals.js';
import { EVALUATION, START, SUMMARY, recordOf, report, stepOf } from './recorded-run.js';

it('prints start, logging steps, evaluations, checkpoints, and a table at the end', () => {
  const lines: string[] = [];
  report(new PlainReporter((line) => lines.push(line)));
  expect(lines.join('\n')).toBe(`\
1,234,567 parameters, training state 18.84 MiB; homes: param host 60 % + nvme 40 %, grad host 100 %, optimizer nvme 100 %
budgets: device 48 GiB, host 64 GiB, nvme 9 GiB
1,200 rows, 34,567 tokens, 20 evaluation rows, 6 steps
step 2/6  loss 4.5000  grad_norm 1.250  lr 5.00e-4  0.50 s/step
step 4/6  loss 4.0000  grad_norm 1.250  lr 5.00e-4  0.50 s/step
evaluation at step 4  eval_loss 3.5000  perplexity 33.12  1.5 s
saved out/checkpoint-4
step 6/6  loss 3.5000  grad_norm 1.250  lr 5.00e-4  0.50 s/step

loss        4.5000 -> 3.5000, mean 4.1250
eval loss   3.5000
perplexity  33.12
steps       6
tokens      3,000
tokens/s    1000.0
wall time   1:15
peak RSS    1.5 GiB

tier       peak  budget
device   46 GiB  48 GiB
host     41 GiB  64 GiB
nvme    512 MiB   9 GiB

link         moved  per step
upload      12 GiB     2 GiB
download     6 GiB     1 GiB
nvme_read    3 GiB   512 MiB
nvme_write     0 B       0 B

model saved in out`);
});

it('tells of data preparation only when it takes long, and then ever more rarely', () => {
  const lines: string[] = [];
  let nowMs = 0;
  const reporter = new PlainReporter(
    (line) => lines.push(line),
    () => nowMs,
  );
  for (; nowMs < 3_600_000; nowMs += 100) {
    const bytesDone = nowMs / 100;
    reporter.preparing({ split: 'eval', rows: nowMs, bytesDone, bytesTotal: 36_000 });
  }
  expect(lines.slice(0, 3)).toEqual([
    'reading the eval data: 5,000 rows, 0 %',
    'reading the eval data: 15,000 rows, 0 %',
    'reading the eval data: 35,000 rows, 0 %',
  ]);
  // 5, 15, 35, … seconds: an hour has nine of them.
  expect(lines).toHaveLength(9);
});

it('says where a stopped run goes on, and after which step a resumed one does', () => {
  const lines: string[] = [];
  const reporter = new PlainReporter((line) => lines.push(line));
  reporter.started({ ...START, evalRows: 0, firstStep: 4 });
  reporter.interrupted('out/checkpoint-5', 5);
  expect(lines.slice(2)).toEqual([
    '1,200 rows, 34,567 tokens, 6 steps',
    'resuming after step 4',
    'stopped after step 5; saved as checkpoint-5',
  ]);
});

it('counts what a resumed run did by itself', () => {
  const totals = new RunTotals();
  totals.started({ ...START, firstStep: 4 });
  totals.stepped(stepOf(5));
  totals.stepped(stepOf(6));
  totals.logged(recordOf(6));
  const text = totals.render(SUMMARY, 'out').join('\n');
  expect(text).toMatch(/^steps +6, 2 in this run$/m);
  expect(text).toMatch(/^upload +12 GiB +2 GiB$/m);
  expect(text).toMatch(/^loss +3\.5000 -> 3\.5000, mean/m);
});

it('shows evaluations of the end, the best checkpoint and fallbacks where there are any', () => {
  const totals = new RunTotals();
  const none = totals.render({ ...SUMMARY, eval_loss: undefined as never }, 'out').join('\n');
  expect(none).not.toMatch(/eval|perplexity|best|fallback/);
  // No step at all: nothing is divided by zero.
  expect(none).toMatch(/^tokens\/s +-$/m);
  expect(none).toMatch(/^loss +mean 4\.1250$/m);
  totals.evaluated(EVALUATION);
  const best = { best_metric: 3.25, best_model_checkpoint: 'out/checkpoint-2', cpu_fallbacks: 7 };
  const all = totals.render({ ...SUMMARY, ...best }, 'out').join('\n');
  expect(all).toMatch(/^best +3\.2500, out\/checkpoint-2$/m);
  expect(all).toMatch(/^CPU fallbacks +7$/m);
});

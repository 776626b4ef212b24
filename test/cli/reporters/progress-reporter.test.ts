// Goal: on a terminal a bar follows every event, and what remains are the plain reporter's lines.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { PlainReporter } from '../../../src/cli/reporters/plain-reporter.js';
import { ProgressReporter } from '../../../src/cli/reporters/progress-reporter.js';
import { StatusBar } from '../../../src/cli/reporters/status-bar.js';
import { FakeTerminal } from './fake-terminal.js';
import { START, report, stepOf } from './recorded-run.js';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function onTerminal(columns: number) {
  const terminal = new FakeTerminal(columns, 30);
  const bar = new StatusBar(terminal);
  const print = (line: string): void => bar.above(() => terminal.write(`${line}\n`));
  return { terminal, bar, reporter: new ProgressReporter(bar, print) };
}

it('shows what the run is at', () => {
  const { terminal, reporter } = onTerminal(140);
  const seen: string[] = [];
  report(reporter, () => {
    vi.advanceTimersByTime(100);
    const line = terminal.currentLine.replace(/ \[.*?\]/, '');
    if (line !== seen.at(-1)) seen.push(line);
  });
  const tiers = 'dev 45/48 host 40/64 nvme 0.4/9 GiB';
  expect(seen).toEqual([
    'reading train data   0% 0 rows',
    'reading train data  50% 600 rows',
    'reading train data 100% 1,200 rows',
    'train   0% 0/6',
    `train  16% 1/6  loss 4.7500  1.0k tok/s  2.5 s left  ${tiers}`,
    `train  33% 2/6  loss 4.5000  1.0k tok/s  2.0 s left  ${tiers}`,
    `train  50% 3/6  loss 4.2500  1.0k tok/s  1.5 s left  ${tiers}`,
    `train  66% 4/6  loss 4.0000  1.0k tok/s  1.0 s left  ${tiers}`,
    'evaluate   0% 0/5',
    'evaluate 100% 5/5',
    `train  66% 4/6  loss 4.0000  1.0k tok/s  1.0 s left  ${tiers}`,
    `train  83% 5/6  loss 3.7500  1.0k tok/s  0.5 s left  ${tiers}`,
    `train 100% 6/6  loss 3.5000  1.0k tok/s  0.0 s left  ${tiers}`,
    '',
  ]);
});

it.each([140, 80, 40, 12])('leaves the plain lines alone on %i columns', (columns) => {
  const plain: string[] = [];
  report(new PlainReporter((line) => plain.push(line)));
  const { terminal, reporter } = onTerminal(columns);
  report(reporter, () => {
    vi.advanceTimersByTime(37);
  });
  const wrapped = plain.flatMap((line) => {
    const rows = line.match(new RegExp(`.{1,${columns}}`, 'g')) ?? [''];
    return rows.map((row) => row.trimEnd());
  });
  expect(terminal.lines).toEqual(wrapped);
  expect(vi.getTimerCount()).toBe(0);
});

it('averages speed over the last twenty steps', () => {
  const { terminal, reporter, bar } = onTerminal(140);
  reporter.started({ ...START, totalSteps: 1000 });
  const step = (index: number, tokens: number, seconds: number): void => {
    reporter.stepped({ ...stepOf(1), step: index, totalSteps: 1000, tokens, seconds });
    vi.advanceTimersByTime(200);
  };
  step(1, 10_000, 100);
  expect(terminal.currentLine).toContain('100 tok/s  1d 3:45:00 left');
  for (let index = 2; index <= 21; index++) step(index, 100, 2);
  expect(terminal.currentLine).toContain('50 tok/s  32:38 left');
  bar.hide();
});

it('clears the bar when the run stops', () => {
  const { terminal, reporter } = onTerminal(80);
  reporter.started(START);
  reporter.stepped(stepOf(1));
  reporter.interrupted('out/checkpoint-1', 1);
  expect(terminal.lines.at(-1)).toBe('stopped after step 1; saved as checkpoint-1');
  expect(vi.getTimerCount()).toBe(0);
});

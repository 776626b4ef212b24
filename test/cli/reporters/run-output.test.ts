// Goal: a bar appears on terminals only, results and notes go where docs/OUTPUT.md says.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { tidyUp } from '../../../src/cli/abrupt-end.js';
import { JsonReporter } from '../../../src/cli/reporters/json-reporter.js';
import { PlainReporter } from '../../../src/cli/reporters/plain-reporter.js';
import { ProgressReporter } from '../../../src/cli/reporters/progress-reporter.js';
import { openRunOutput } from '../../../src/cli/reporters/run-output.js';
import { FakeTerminal } from './fake-terminal.js';
import { START, recordOf, stepOf } from './recorded-run.js';

const text = { json: false, logFormat: 'text', disableTqdm: false } as const;
const env = { TERM: 'xterm' };

function pipe(): FakeTerminal {
  return Object.assign(new FakeTerminal(200), { isTTY: false as never });
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

describe('a run on a terminal', () => {
  it('has a bar on standard error, and lines of both streams above it', async () => {
    const terminal = new FakeTerminal(90);
    const output = await openRunOutput(text, { stdout: terminal, stderr: terminal, env });
    expect(output.reporter).toBeInstanceOf(ProgressReporter);
    output.reporter.started(START);
    output.logger.warn('disk is slow', { path: '/a' });
    output.reporter.logged(recordOf(1));
    expect(terminal.lines.slice(-3)).toEqual([
      'warning: disk is slow (path=/a)',
      'step 1/6  loss 4.7500  grad_norm 1.250  lr 5.00e-4  0.50 s/step',
      expect.stringMatching(/^train {3}0% \[-{30}\] 0\/6$/) as string,
    ]);
    output.dispose();
    output.dispose();
    expect(terminal.lines.at(-1)).toContain('step 1/6');
    expect(vi.getTimerCount()).toBe(0);
  });

  it('keeps the bar out of results that go to a file', async () => {
    const [stdout, stderr] = [pipe(), new FakeTerminal()];
    const output = await openRunOutput(text, { stdout, stderr, env });
    output.reporter.started(START);
    output.reporter.stepped(stepOf(1));
    output.reporter.logged(recordOf(1));
    expect(stderr.currentLine).toContain('train');
    expect(stdout.writes.join('')).not.toContain('\u001B');
    expect(stdout.lines).toHaveLength(4);
    output.dispose();
    expect(stderr.lines).toEqual([]);
  });

  it('is left tidy when the process ends in the middle of things', async () => {
    const terminal = new FakeTerminal();
    const output = await openRunOutput(text, { stdout: pipe(), stderr: terminal, env });
    output.reporter.started(START);
    expect(terminal.lines).toHaveLength(1);
    tidyUp();
    expect(terminal.lines).toEqual([]);
    expect(vi.getTimerCount()).toBe(0);
    output.dispose();
  });
});

describe('a run without a bar', () => {
  it.each([
    ['standard error is no terminal', text, env, false],
    ['disable_tqdm is set', { ...text, disableTqdm: true }, env, true],
    ['it is continuous integration', text, { ...env, CI: 'true' }, true],
    ['the terminal is dumb', text, { TERM: 'dumb' }, true],
    ['notes are JSON', { ...text, logFormat: 'json' }, env, true],
  ] as const)('is one of plain lines, as when %s', async (_, options, environment, isTerminal) => {
    const streams = { stdout: pipe(), stderr: isTerminal ? new FakeTerminal() : pipe() };
    const output = await openRunOutput(options, { ...streams, env: environment });
    expect(output.reporter).toBeInstanceOf(PlainReporter);
    output.reporter.started(START);
    output.reporter.stepped(stepOf(1));
    if (options.logFormat === 'text') {
      output.logger.info('note');
      expect(streams.stderr.writes.join('')).toBe('note\n');
    }
    expect(streams.stdout.lines).toHaveLength(3);
    output.dispose();
  });

  it('is one of JSON events with --json, also on a terminal', async () => {
    const terminal = new FakeTerminal(5000);
    const options = { ...text, json: true };
    const output = await openRunOutput(options, { stdout: terminal, stderr: terminal, env });
    expect(output.reporter).toBeInstanceOf(JsonReporter);
    output.reporter.saved('a', 1);
    expect(terminal.lines).toEqual(['{"event":"saved","step":1,"folder":"a"}']);
  });

  it('counts CI=false as nobody', async () => {
    const terminal = new FakeTerminal();
    const streams = { stdout: terminal, stderr: terminal, env: { ...env, CI: 'false' } };
    const output = await openRunOutput(text, streams);
    expect(output.reporter).toBeInstanceOf(ProgressReporter);
    output.dispose();
  });
});

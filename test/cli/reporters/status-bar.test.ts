// Goal: the bar stays on the last row, lines above it stay whole, and it leaves no trace.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { ProgressState } from '../../../src/cli/reporters/progress-line.js';
import { StatusBar } from '../../../src/cli/reporters/status-bar.js';
import { FakeTerminal } from './fake-terminal.js';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function stateOf(done: number): ProgressState {
  return { label: 'train', done, total: 100, count: `${done}/100`, fields: [] };
}

it('is drawn below the lines, also when the screen scrolls, and is cleared at the end', () => {
  const terminal = new FakeTerminal(60, 5);
  const bar = new StatusBar(terminal);
  terminal.write('before\n');
  const lines: string[] = [];
  for (let done = 0; done < 20; done++) {
    bar.show(stateOf(done));
    const line = `line ${done} x${'x'.repeat((done * 13) % 48)}`;
    bar.above(() => terminal.write(`${line}\n`));
    lines.push(line);
    expect(terminal.lines.slice(0, -1)).toEqual(['before', ...lines]);
    expect(terminal.currentLine).toMatch(/^train +\d+% \[#*-+\] \d+\/100$/);
    expect(terminal.currentLine).toContain(` ${done}/100`);
  }
  bar.hide();
  bar.hide();
  terminal.write('error: X\n');
  expect(terminal.lines).toEqual(['before', ...lines, 'error: X']);
  expect(vi.getTimerCount()).toBe(0);
});

it('is redrawn at most ten times a second', () => {
  const terminal = new FakeTerminal();
  const bar = new StatusBar(terminal);
  const drawn = () => terminal.writes.filter((text) => text.startsWith('train')).length;
  for (let ms = 0; ms < 3000; ms++) {
    bar.show(stateOf(ms % 100));
    vi.advanceTimersByTime(1);
  }
  expect(drawn()).toBeGreaterThanOrEqual(28);
  expect(drawn()).toBeLessThanOrEqual(31);
  bar.hide();
});

it('follows the width of the terminal', () => {
  const terminal = new FakeTerminal(60);
  const bar = new StatusBar(terminal);
  bar.show(stateOf(50));
  expect(terminal.currentLine).toBe(`train  50% [${'#'.repeat(15)}${'-'.repeat(15)}] 50/100`);
  terminal.columns = 20;
  vi.advanceTimersByTime(150);
  expect(terminal.currentLine).toBe('train  50% 50/100');
  bar.hide();
  expect(terminal.lines).toEqual([]);
});

it('prints lines as they are while there is no bar', () => {
  const terminal = new FakeTerminal();
  new StatusBar(terminal).above(() => terminal.write('alone\n'));
  expect(terminal.writes).toEqual(['alone\n']);
});

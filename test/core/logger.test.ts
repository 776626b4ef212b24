// Goal: messages go to standard error only, warnings are marked, and repeated ones come once.
import { afterEach, expect, it, vi } from 'vitest';
import { silentLogger, stderrLogger, warnOnce } from '../../core/logger.js';

afterEach(() => {
  vi.restoreAllMocks();
});

function capture() {
  const stdout = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  const stderr = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  return { stdout, stderr };
}

it('writes notes and marked warnings as lines of standard error', () => {
  const { stdout, stderr } = capture();
  stderrLogger.info('ready');
  stderrLogger.warn('no huge pages');
  expect(stderr.mock.calls.map(([text]) => text)).toEqual(['ready\n', 'warning: no huge pages\n']);
  expect(stdout).not.toHaveBeenCalled();
});

it('appends facts as errors do', () => {
  const { stderr } = capture();
  stderrLogger.info('ready', {});
  stderrLogger.warn('slow disk', { path: '/a', bytes: 5, names: ['b', 'c'] });
  const lines = stderr.mock.calls.map(([text]) => text);
  expect(lines).toEqual(['ready\n', 'warning: slow disk (path=/a bytes=5 names=b,c)\n']);
});

it('writes nothing when silent', () => {
  const { stdout, stderr } = capture();
  silentLogger.info('ready');
  silentLogger.warn('no huge pages');
  expect(stdout).not.toHaveBeenCalled();
  expect(stderr).not.toHaveBeenCalled();
});

it('warns once for each key', () => {
  const warn = vi.fn();
  const logger = { ...silentLogger, warn };
  for (const message of ['first', 'second']) warnOnce(logger, 'test/logger/a', message);
  warnOnce(logger, 'test/logger/b', 'third');
  expect(warn.mock.calls).toEqual([['first'], ['third']]);
});

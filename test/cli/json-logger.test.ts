// Goal: notes as JSON lines: each complete at once, with pino's keys, facts as data.
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { warnOnce } from '../../core/logger.js';
import { jsonLogger } from '../../src/cli/json-logger.js';

const folder = mkdtempSync(join(tmpdir(), 'spillway-json-logger-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

it('writes one object per message, at once', () => {
  const path = join(folder, 'log');
  const fd = openSync(path, 'w');
  const lines = (): unknown[] =>
    readFileSync(path, 'utf8')
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as unknown);
  const before = Date.now();
  const logger = jsonLogger(fd);
  logger.info('reading\n"a"');
  expect(lines()).toHaveLength(1);
  logger.warn('no huge pages', { path: '/a', sizes: ['1', '2'] });
  warnOnce(logger, 'test/json-logger', 'slow', { seconds: 3 });
  warnOnce(logger, 'test/json-logger', 'slow', { seconds: 4 });
  const time = expect.any(Number) as number;
  expect(lines()).toEqual([
    { level: 30, time, msg: 'reading\n"a"' },
    { level: 40, time, facts: { path: '/a', sizes: ['1', '2'] }, msg: 'no huge pages' },
    { level: 40, time, facts: { seconds: 3 }, msg: 'slow' },
  ]);
  const [first] = lines() as { time: number }[];
  expect(first!.time).toBeGreaterThanOrEqual(before);
  expect(first!.time).toBeLessThanOrEqual(Date.now());
  closeSync(fd);
});

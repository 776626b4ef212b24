// Goal: an error keeps its code, facts and cause, and prints as one line.
import { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { SpillwayError, assert, formatError, hasCode, isCoded } from '../../core/errors.js';

it('keeps code, facts and cause', () => {
  const cause = new Error('ENOSPC');
  const error = new SpillwayError('NVME_FULL', 'full; free space', { neededBytes: 7 }, cause);
  expect(error).toBeInstanceOf(Error);
  expect(error.name).toBe('SpillwayError');
  expect(error.code).toBe('NVME_FULL');
  expect(error.facts).toEqual({ neededBytes: 7 });
  expect(error.cause).toBe(cause);
  expect(Object.hasOwn(new SpillwayError('INTERNAL', 'x'), 'cause')).toBe(false);
});

it('is recognised by its code alone, as worker threads strip the class', async () => {
  const worker = new Worker(
    `const { parentPort } = require('node:worker_threads');
     parentPort.postMessage({ message: 'dead', code: 'WORKER_FAILED' });`,
    { eval: true },
  );
  const sent = await new Promise<{ message: string; code: string }>((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  });
  await worker.terminate();
  const rebuilt = Object.assign(new Error(sent.message), { code: sent.code });
  expect(hasCode(rebuilt, 'WORKER_FAILED')).toBe(true);
  expect(hasCode(rebuilt, 'IO_ERROR')).toBe(false);
});

it('does not take foreign codes, inherited names or non-errors for its own', () => {
  expect(isCoded(Object.assign(new Error('x'), { code: 'ENOENT' }))).toBe(false);
  expect(isCoded(Object.assign(new Error('x'), { code: 'toString' }))).toBe(false);
  expect(isCoded(Object.assign(new Error('x'), { code: 7 }))).toBe(false);
  expect(isCoded({ code: 'IO_ERROR' })).toBe(false);
  expect(isCoded(undefined)).toBe(false);
});

it('prints facts after the message, lists with commas, always on one line', () => {
  const error = new SpillwayError('DATA_INVALID', 'line one\n  line two; mend it', {
    line: 3,
    strict: true,
    keys: ['a', 'b'],
  });
  expect(formatError(error)).toBe(
    'DATA_INVALID: line one line two; mend it (line=3 strict=true keys=a,b)',
  );
  expect(formatError(new SpillwayError('DATA_EMPTY', 'nothing'))).toBe('DATA_EMPTY: nothing');
  expect(formatError(new RangeError('a\r\nb'))).toBe('INTERNAL: a b');
  expect(formatError('text')).toBe('INTERNAL: text');
  const long = formatError(new SpillwayError('DATA_INVALID', 'x'.repeat(10_000)));
  expect([long.length, long.at(-1)]).toEqual([4000, '…']);
});

it('asserts with INTERNAL and the facts', () => {
  expect(() => assert(true, 'never')).not.toThrow();
  expect(() => assert(1 + 1 === 3, 'sums are right', { sum: 2 })).toThrow(
    expect.objectContaining({
      code: 'INTERNAL',
      message: 'assertion failed: sums are right',
      facts: { sum: 2 },
    }),
  );
});

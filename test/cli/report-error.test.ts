// Goal: any error becomes one line and the exit status of the table.
import { expect, it } from 'vitest';
import { ERROR_EXIT_STATUS, SpillwayError } from '../../core/errors.js';
import type { ErrorCode } from '../../core/errors.js';
import { errorFormatOf } from '../../src/cli/error-format.js';
import { exitStatusOf, renderError, renderErrorJson } from '../../src/cli/report-error.js';

it('takes the status from the table of codes', () => {
  for (const [code, status] of Object.entries(ERROR_EXIT_STATUS)) {
    expect(exitStatusOf(new SpillwayError(code as ErrorCode, 'm'))).toBe(status);
  }
});

it('keeps the status of an error that a worker thread has cloned', () => {
  const cloned = structuredClone(new SpillwayError('DATA_EMPTY', 'nothing'));
  expect(exitStatusOf(Object.assign(cloned, { code: 'DATA_EMPTY' }))).toBe(2);
});

it('calls anything else INTERNAL, status 1, without a stack', () => {
  expect(exitStatusOf(new TypeError('x is undefined'))).toBe(1);
  expect(renderError(new TypeError('x is\n  undefined'), false)).toBe(
    'error: INTERNAL: x is undefined\n',
  );
  expect(renderError('text', false)).toBe('error: INTERNAL: text\n');
});

it('prints code, message and facts on one line', () => {
  const error = new SpillwayError('NVME_FULL', 'full; free space', {
    neededBytes: 5,
    paths: ['a', 'b'],
  });
  expect(renderError(error, false)).toBe(
    'error: NVME_FULL: full; free space (neededBytes=5 paths=a,b)\n',
  );
});

it('prints the causes with debug, and ends when they form a circle', () => {
  const cause = new Error('disk');
  const error = new SpillwayError('IO_ERROR', 'read', {}, cause);
  expect(renderError(error, true)).toContain(`caused by: ${cause.stack!}`);
  cause.cause = error;
  expect(renderError(error, true).match(/caused by/g)!.length).toBeLessThan(10);
});

it('prints one JSON object on one line where JSON is asked for', () => {
  const facts = { neededBytes: 5, paths: ['a', 'b'] };
  const line = renderErrorJson(new SpillwayError('NVME_FULL', 'full;\nfree space', facts), false);
  expect(line).toMatch(/^[^\n]+\n$/);
  expect(JSON.parse(line)).toEqual({
    code: 'NVME_FULL',
    message: 'full;\nfree space',
    facts,
    exit_status: 1,
  });
  expect(JSON.parse(renderErrorJson(new TypeError('x'), false))).toEqual({
    code: 'INTERNAL',
    message: 'x',
    facts: {},
    exit_status: 1,
  });
  const debug = JSON.parse(
    renderErrorJson(new SpillwayError('DATA_EMPTY', 'none'), true),
  ) as object;
  expect(debug).toMatchObject({ exit_status: 2, stack: expect.stringContaining(' at ') as string });
});

it('finds on the command line whether JSON is asked for', () => {
  const json = [
    ['train', '--json'],
    ['--log_format', 'json'],
    ['a', '--log-format=json'],
  ];
  expect(json.map(errorFormatOf)).toEqual(['json', 'json', 'json']);
  const text = [
    [],
    ['--log_format', 'text', 'json'],
    ['--log_format=text'],
    ['json'],
    ['--log_format'],
  ];
  expect(text.map(errorFormatOf)).toEqual(['text', 'text', 'text', 'text', 'text']);
});

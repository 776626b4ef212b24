// Goal: the system's errors have one name each, whether they carry it or its number.
import { expect, it } from 'vitest';
import { errnoOf } from '../../core/errno.js';

const withCode = (code: unknown): Error => Object.assign(new Error('failed'), { code });

it('names errors by their text or by their number, as LMDB throws them', () => {
  expect(errnoOf(withCode('EACCES'))).toBe('EACCES');
  expect(errnoOf(withCode(13))).toBe('EACCES');
  expect(errnoOf(withCode(30))).toBe('EROFS');
});

it('has no name for what is not the system\u2019s', () => {
  // MDB_CORRUPTED, and no number of an error.
  expect([-30796, 0, 1e6, undefined].map((code) => errnoOf(withCode(code)))).toEqual(
    Array.from({ length: 4 }, () => 'unknown'),
  );
  expect(errnoOf(13)).toBe('unknown');
});

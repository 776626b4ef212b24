// Goal: a bar's text fits the terminal, drops the least important first, and shows true numbers.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  describeOccupancy,
  describeTokenRate,
  renderProgressLine,
  type ProgressState,
} from '../../../src/cli/reporters/progress-line.js';

const GIB = 2 ** 30;
const state: ProgressState = {
  label: 'train',
  done: 450,
  total: 1000,
  count: '450/1000',
  fields: ['loss 2.3456', '1.2k tok/s', '3:25 left', 'dev 45/48 host 40/48 nvme 0.4/9 GiB'],
};

describe('a progress line', () => {
  it.each([
    [
      121,
      'train  45% [###########--------------] 450/1000  loss 2.3456  1.2k tok/s  3:25 left  dev 45/48 host 40/48 nvme 0.4/9 GiB',
    ],
    [80, 'train  45% [#########------------] 450/1000  loss 2.3456  1.2k tok/s  3:25 left'],
    [60, 'train  45% 450/1000  loss 2.3456  1.2k tok/s  3:25 left'],
    [40, 'train  45% 450/1000  loss 2.3456'],
    [20, 'train  45% 450/1000'],
    [19, '45% 450/1000'],
    [8, '45% 450'],
  ])('of %i columns drops what does not fit', (columns, line) => {
    expect(renderProgressLine(state, columns)).toBe(line);
  });

  it('is never wider than the terminal, and its bar has the share that is done', () => {
    const states = fc.record({
      label: fc.constantFrom('train', 'evaluate', 'reading train data'),
      done: fc.nat(2000),
      total: fc.nat(1000),
      count: fc.string({ maxLength: 20 }),
      fields: fc.array(fc.string({ minLength: 1, maxLength: 40 }), { maxLength: 4 }),
    });
    fc.assert(
      fc.property(states, fc.integer({ min: 2, max: 200 }), (any, columns) => {
        const line = renderProgressLine(any, columns);
        expect(line.length).toBeLessThan(columns);
        const bar = /^\S[^[]*% \[(#*)(-*)\]/.exec(line);
        if (bar === null) return;
        const [full, cells] = [bar[1]!.length, bar[1]!.length + bar[2]!.length];
        const share = any.total === 0 ? 0 : Math.min(1, any.done / any.total);
        expect(full).toBe(Math.floor(share * cells));
        expect(cells).toBeGreaterThanOrEqual(10);
        expect(cells).toBeLessThanOrEqual(30);
      }),
    );
  });
});

it('tells occupancy in one unit where it can', () => {
  const budget = { device: 48 * GIB, host: 48 * GIB, nvme: 9 * GIB };
  const held = { device: 45.2 * GIB, host: 40 * GIB, nvme: 0.4 * GIB };
  expect(describeOccupancy(held, budget)).toBe('dev 45/48 host 40/48 nvme 0.4/9 GiB');
  expect(describeOccupancy(held, { ...budget, nvme: 0 })).toBe('dev 45/48 host 40/48 GiB');
  const small = { device: 3 * 2 ** 20, host: 512, nvme: 2 ** 41 };
  expect(describeOccupancy({ device: 2 ** 20, host: 100, nvme: 2 ** 40 }, small)).toBe(
    'dev 1/3 MiB host 100/512 B nvme 1/2 TiB',
  );
});

it('tells speed with three figures at most, and nothing where it is unknown', () => {
  const rates = [0.25, 9.94, 9.96, 123.4, 999.6, 12_345, Number.NaN, Number.POSITIVE_INFINITY];
  expect(rates.map((rate) => describeTokenRate(rate))).toEqual([
    '0.3 tok/s',
    '9.9 tok/s',
    '10 tok/s',
    '123 tok/s',
    '1.0k tok/s',
    '12.3k tok/s',
    '',
    '',
  ]);
});

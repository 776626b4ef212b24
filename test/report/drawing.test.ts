// Goal: escaping loses nothing and lets nothing through; times, scales and courses are right.
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { html } from '../../src/report/html.js';
import { clip, commonLength, gaps, lengthOf, union } from '../../src/report/intervals.js';
import { byteUnit, linearScale, tickTexts } from '../../src/report/scale.js';
import { Series } from '../../src/report/series.js';
import { duration } from '../../src/report/text.js';
import { decode } from './check-page.js';

it('any text comes out of HTML as it went in, and no markup comes of it', () => {
  const text = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.string({ unit: fc.constantFrom('<', '>', '&', '"', "'", '`', ';', 'a') }),
  );
  fc.assert(
    fc.property(text, (original) => {
      const page = html`<p title="${original}">${[original]}</p>`.text;
      const found = /^<p title="([^"<>'`]*)">([^"<>'`]*)<\/p>$/.exec(page);
      const seen = original.replaceAll(/[^\P{Cc}\t\n]/gu, '\ufffd');
      expect([decode(found![1]!), decode(found![2]!)]).toEqual([seen, seen]);
    }),
  );
});

it('HTML that is filled in stays HTML', () => {
  expect(html`<p>${html`<b>${1}</b>`}${undefined}${['<', html`<i></i>`]}</p>`.text).toBe(
    '<p><b>1</b>&lt;<i></i></p>',
  );
});

const LENGTH = 40;
const intervals = fc.array(
  fc
    .tuple(fc.nat(LENGTH - 1), fc.nat(8))
    .map(([start, length]) => ({ start, end: Math.min(LENGTH, start + length + 1) })),
  { maxLength: 12 },
);

/** Which of the unit times intervals cover. */
const cover = (some: readonly { start: number; end: number }[]): boolean[] =>
  Array.from({ length: LENGTH }, (_, at) => some.some(({ start, end }) => start <= at && at < end));

it('unions, gaps and common times are those of sets of unit times', () => {
  fc.assert(
    fc.property(intervals, intervals, (some, others) => {
      const [a, b] = [union(some), union(others)];
      expect(cover(a)).toEqual(cover(some));
      for (const [index, one] of a.entries()) {
        if (index > 0) expect(one.start).toBeGreaterThan(a[index - 1]!.end);
      }
      expect(lengthOf(a)).toBe(cover(some).filter(Boolean).length);
      const both = cover(some).filter((covered, at) => covered && cover(others)[at]);
      expect(commonLength(a, b)).toBe(both.length);
      const free = gaps({ start: 0, end: LENGTH }, a);
      expect(cover(free)).toEqual(cover(some).map((covered) => !covered));
      const window = { start: 10, end: 20 };
      const inside = cover(some).map((covered, at) => covered && at >= 10 && at < 20);
      expect(cover(some.flatMap((one) => clip(one, window)))).toEqual(inside);
    }),
  );
});

it('a scale holds its values, and has a handful of ascending ticks within', () => {
  const value = fc.double({ min: -1e9, max: 1e9, noNaN: true });
  fc.assert(
    fc.property(value, value, fc.boolean(), (a, b, ends) => {
      const [low, high] = [Math.min(a, b), Math.max(a, b)];
      // Closer than doubles tell apart beside their size is one value.
      fc.pre(high === low || high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high)));
      const { min, max, ticks, at } = linearScale([low, high], [100, 300], { ends });
      const slack = 1e-6 * (max - min);
      expect(min).toBeLessThanOrEqual(low + slack);
      expect(max).toBeGreaterThanOrEqual(high - slack);
      expect(ticks.length).toBeGreaterThanOrEqual(2);
      expect(ticks.length).toBeLessThanOrEqual(8);
      for (const [index, tick] of ticks.entries()) {
        expect(at(tick)).toBeGreaterThan(99);
        expect(at(tick)).toBeLessThan(301);
        if (index > 0) expect(tick).toBeGreaterThan(ticks[index - 1]!);
      }
    }),
  );
});

it.each([
  [0, 'B'],
  [1023, 'B'],
  [1024, 'KiB'],
  [3 * 2 ** 30, 'GiB'],
  [2 ** 60, 'TiB'],
])('%d bytes are counted in %s', (bytes, name) => {
  expect(byteUnit(bytes).name).toBe(name);
});

it('ticks of whole numbers are whole, and of one axis written alike', () => {
  const { ticks } = linearScale([1, 3], [0, 100], { whole: true, tickCount: 6 });
  expect(ticks).toEqual([1, 2, 3]);
  expect(linearScale([5, 5], [0, 100], { whole: true, ends: false }).ticks).toEqual([4, 5, 6]);
  expect([0, 2e-4, 0.001].map(tickTexts([0, 2e-4, 0.001]))).toEqual(['0', '2e-4', '1e-3']);
  expect([0, 0.5, 1].map(tickTexts([0, 0.5, 1]))).toEqual(['0', '0.5', '1']);
});

const value = fc.double({ min: -1e6, max: 1e6, noNaN: true });

it('a series of any length keeps order, extremes, count and mean in few columns', () => {
  fc.assert(
    fc.property(
      fc.array(value, { minLength: 1, maxLength: 400 }),
      fc.integer({ min: 2, max: 9 }),
      (ys, limit) => {
        const series = new Series(limit);
        for (const [x, y] of ys.entries()) expect(series.add(x, y)).toBe(true);
        const { columns } = series;
        expect(columns.length).toBeLessThanOrEqual(2 * limit);
        expect(series.isWhole).toBe(columns.length === ys.length);
        let x = 0;
        for (const { from, to, low, high, mean, last, count } of columns) {
          const own = ys.slice(from, to + 1);
          expect([from, count]).toEqual([x, own.length]);
          expect([low, high, last]).toEqual([Math.min(...own), Math.max(...own), own.at(-1)]);
          expect(mean).toBeCloseTo(own.reduce((sum, y) => sum + y, 0) / own.length, 3);
          x = to + 1;
        }
        expect(x).toBe(ys.length);
      },
    ),
  );
});

it('a series leaves out what no axis holds, and is scaled and held', () => {
  const series = new Series();
  const values = [1, NaN, Infinity, 1e300, 2];
  expect(values.map((y, x) => series.add(x, y))).toEqual([true, false, false, false, true]);
  const columns = series.scaled(10, 2).heldTo(100).columns;
  expect(columns.map(({ from, last }) => [from, last])).toEqual([
    [0, 2],
    [40, 4],
    [100, 4],
  ]);
  expect(series.columns).toHaveLength(2);
});

it.each([
  [0.4, '0.4 µs'],
  [999.4, '999 µs'],
  [999.6, '1 ms'],
  [123_456, '123 ms'],
  [999_600, '1 s'],
  [59e6, '59 s'],
  [599e6, '10 min'],
  [3600e6, '1 h 0 min'],
  [36_125e6, '10 h 2 min'],
])('%d microseconds are %s', (microseconds, text) => {
  expect(duration(microseconds)).toBe(text);
});

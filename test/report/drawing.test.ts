// Goal: escaping loses nothing and lets nothing through; times, scales and thinned lines are right.
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { LANES, type Lane } from '../../core/types.js';
import { html } from '../../src/report/html.js';
import { clip, commonLength, gaps, lengthOf, union } from '../../src/report/intervals.js';
import { laneShares } from '../../src/report/lane-table.js';
import { thin } from '../../src/report/line-chart.js';
import type { ReportedSlice } from '../../src/report/read-trace.js';
import { byteUnit, linearScale } from '../../src/report/scale.js';
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

it('a lane is hidden where compute runs beside it', () => {
  const none = Object.fromEntries(LANES.map((lane) => [lane, []])) as unknown as Record<Lane, []>;
  const slice = (start: number, end: number): ReportedSlice => ({
    start,
    end,
    name: '',
    phase: '',
  });
  const slices = {
    ...none,
    compute: [slice(0, 4), slice(6, 10)],
    upload: [slice(2, 5), slice(3, 7), slice(12, 13)],
  };
  expect(laneShares({ slices })).toEqual([
    { lane: 'compute', busy: 8, hidden: 8 },
    { lane: 'upload', busy: 6, hidden: 3 },
  ]);
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

it('a long line keeps its order and its extremes', () => {
  const points = Array.from({ length: 50_000 }, (_, x) => ({ x, y: Math.sin(x / 7) }));
  points[31_415] = { x: 31_415, y: 99 };
  points[27_182] = { x: 27_182, y: -99 };
  const shown = thin(points, 1000);
  expect(shown.length).toBeLessThanOrEqual(1000);
  const ys = shown.map(({ y }) => y);
  expect([Math.min(...ys), Math.max(...ys)]).toEqual([-99, 99]);
  expect(shown.map(({ x }) => x)).toEqual(shown.map(({ x }) => x).sort((a, b) => a - b));
  expect(thin(points.slice(0, 10), 1000)).toHaveLength(10);
});

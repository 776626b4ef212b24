// Goal: a step's time is accounted for whole, the step that is shown is a typical one, and what is
// advised is about what it waits for.
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { LANES, type Lane } from '../../core/types.js';
import { adviceOn } from '../../src/report/advice.js';
import { chooseStep } from '../../src/report/choose-step.js';
import type { LaneSlices, ReportedSlice, ReportedStall } from '../../src/report/read-trace.js';
import { accountOf, type AccountedTrace } from '../../src/report/step-account.js';

const slice = (start: number, end: number, more: Partial<ReportedSlice> = {}): ReportedSlice => ({
  start,
  end,
  name: 'some',
  phase: undefined,
  bytes: 0,
  ...more,
});

const stall = (start: number, end: number, lane?: Lane, name = 'host'): ReportedStall => ({
  start,
  end,
  lane,
  name: lane === undefined ? name : `waits for ${lane}: some`,
});

function lanes(some: Partial<Record<Lane, readonly ReportedSlice[]>>): LaneSlices {
  const none = Object.fromEntries(LANES.map((lane) => [lane, []])) as unknown as LaneSlices;
  return { ...none, ...some };
}

const trace: AccountedTrace = {
  window: { start: 0, end: 20 },
  slices: lanes({
    compute: [slice(2, 6), slice(8, 12)],
    upload: [slice(0, 3, { bytes: 7 }), slice(1, 7, { bytes: 5 }), slice(14, 15)],
    update: [slice(12, 18)],
  }),
  stalls: [stall(0, 2, 'upload'), stall(6, 7, 'upload'), stall(7, 8), stall(12, 18, 'update')],
  predicted: {
    window: { start: 0, end: 10 },
    slices: lanes({ update: [slice(1, 3), slice(2, 4)] }),
    busySeconds: { compute: 6e-6, upload: 2e-6, nvme_read: 0 },
  },
};

it('a lane is hidden where compute runs beside it, and has kept compute where that waited for it', () => {
  expect(accountOf(trace).lanes).toEqual([
    { lane: 'compute', busy: 8, hidden: 8, kept: 0, bytes: 0, predicted: 6 },
    { lane: 'upload', busy: 8, hidden: 4, kept: 3, bytes: 12, predicted: 2 },
    { lane: 'update', busy: 6, hidden: 0, kept: 6, bytes: 0, predicted: 3 },
  ]);
});

it('the whole time is spent on something, longest first', () => {
  const { spent, waits, length, predicted } = accountOf(trace);
  expect(spent).toEqual([
    { on: 'compute', length: 8 },
    { on: 'update', length: 6 },
    { on: 'upload', length: 3 },
    { on: 'host', length: 3 },
  ]);
  expect([length, predicted]).toEqual([20, 10]);
  expect(waits).toEqual([
    { name: 'waits for update: some', count: 1, total: 6, longest: 6 },
    { name: 'waits for upload: some', count: 2, total: 3, longest: 2 },
    { name: 'host', count: 1, total: 1, longest: 1 },
  ]);
});

it('what follows the last kernel is told as such where no later one says why', () => {
  const { spent } = accountOf({ ...trace, stalls: trace.stalls.slice(0, 3) });
  expect(spent).toContainEqual({ on: 'end', length: 8 });
});

const text = (account: AccountedTrace): string =>
  adviceOn(accountOf(account))
    .map((one) => one.text.replaceAll(/<[^>]*>/g, '').replaceAll(/\s+/g, ' '))
    .join(' ');

it('advice is about what the step waits for', () => {
  const waiting = text(trace);
  expect(waiting).toContain('Compute works for 40 % of this step');
  expect(waiting).toMatch(
    /waits for update for 6 µs, 30 %\. .*optimizer_workers.*max_grad_norm: 0/,
  );
  expect(waiting).toMatch(/waits for upload for 3 µs, 15 %\. A larger device_memory/);
  expect(waiting).not.toContain('nvme');
  expect(waiting).toContain('The step took 2 × what was predicted');
  const busy = {
    ...trace,
    slices: lanes({ compute: [slice(0, 19)] }),
    stalls: [],
    predicted: undefined,
  };
  expect(text(busy)).toBe(
    'Compute limits this step: it works for 95 % of the time. More memory would save at most the other 5 %.',
  );
});

it('where updates begin during backward, that is not advised', () => {
  const backward = { phase: 'backward' } as const;
  const slices = lanes({
    compute: [slice(0, 4, backward), slice(10, 12, backward)],
    update: [slice(5, 20)],
  });
  const early = text({ ...trace, slices, stalls: [stall(12, 20, 'update')] });
  expect(early).toContain('optimizer_workers');
  expect(early).not.toContain('max_grad_norm');
});

const steps = (...starts: readonly number[]) =>
  new Map(starts.map((start, index) => [index + 3, { start, end: start + 5 }]));

it('the shown step is the median of those that follow another and are followed by one', () => {
  const chosen = chooseStep({ steps: steps(0, 50, 60, 90, 112), interludes: [] });
  expect(chosen).toEqual({
    step: 6,
    window: { start: 90, end: 112 },
    isWhole: true,
    range: [10, 30],
  });
});

it('no evaluation or checkpoint lies in the shown step, if any is without', () => {
  const interludes = [{ start: 56, end: 58 }];
  expect(chooseStep({ steps: steps(0, 50, 60, 90), interludes })?.step).toBe(5);
  // Only the first is left.
  expect(chooseStep({ steps: steps(0, 50, 60), interludes })).toMatchObject({
    step: 3,
    isWhole: true,
  });
  const between = [...interludes, { start: 20, end: 30 }];
  expect(chooseStep({ steps: steps(0, 50, 60), interludes: between })).toEqual({
    step: 5,
    window: { start: 60, end: 65 },
    isWhole: false,
    range: undefined,
  });
  expect(chooseStep({ steps: new Map(), interludes: [] })).toBeUndefined();
});

it('any steps and interludes: the shown window is one of theirs', () => {
  const gaps = fc.array(fc.integer({ min: 6, max: 30 }), { maxLength: 8 });
  fc.assert(
    fc.property(gaps, fc.array(fc.nat(200), { maxLength: 4 }), (lengths, at) => {
      const starts = lengths.reduce((all, gap) => [...all, all.at(-1)! + gap], [0]);
      const all = steps(...starts);
      const interludes = at.map((start) => ({ start, end: start + 1 }));
      const { step, window, isWhole } = chooseStep({ steps: all, interludes })!;
      const [own, next] = [all.get(step)!, all.get(step + 1)];
      expect(window).toEqual(isWhole ? { start: own.start, end: next!.start } : own);
      if (!isWhole) return;
      expect(interludes.some(({ start }) => start >= own.end && start < next!.start)).toBe(false);
    }),
  );
});

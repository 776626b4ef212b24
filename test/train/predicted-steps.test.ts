// Goal: predicted steps are those of one simulation in a row, by each step's own costs, told on the
// lanes and in the seconds of the measured ones.
import { expect, it } from 'vitest';
import { LINKS, type Link } from '../../core/types.js';
import { DEFAULT_COSTS, stepCosts, type LinkCost, type StepCosts } from '../../src/plan/costs.js';
import { simulate } from '../../src/plan/simulate.js';
import type { Operation, StepPlan } from '../../src/plan/step-plan.js';
import { predictable, writePredicted } from '../../src/train/trace/predicted-steps.js';
import type { TraceEvent } from '../../src/train/trace/trace-event.js';
import { TraceProcess } from '../../src/train/trace/trace-process.js';
import { throttledCosts } from '../../src/train/throttled-costs.js';

const base = { bytes: {}, after: [], phase: 'forward' } as const;

const OPERATIONS: readonly Operation[] = [
  {
    ...base,
    id: 0,
    lane: 'upload',
    action: { kind: 'fetch-params', block: 1, offset: 0 },
    bytes: { nvme_read: 3e6, upload: 3e6 },
    fences: [0],
  },
  { ...base, id: 1, lane: 'compute', action: { kind: 'end', microBatch: 0 }, after: [0] },
  {
    ...base,
    id: 2,
    lane: 'download',
    phase: 'backward',
    action: { kind: 'write-gradients', block: 1, operation: 1, first: true },
    bytes: { download: 2e6 },
    after: [1],
  },
  // Within host memory.
  {
    ...base,
    id: 3,
    lane: 'nvme_write',
    phase: 'backward',
    action: { kind: 'write-rows', param: 'table' },
    after: [2],
  },
  {
    ...base,
    id: 4,
    lane: 'update',
    phase: 'update',
    action: { kind: 'update', shard: 0, group: 0, length: 4e6 },
    bytes: { nvme_read: 1e6, nvme_write: 1e6 },
    after: [3],
  },
];

const PLAN: StepPlan = { operations: OPERATIONS, paramLoadCount: 1 };

function costs(multiplyAdds: number): StepCosts {
  return stepCosts(DEFAULT_COSTS, {
    workers: 1,
    workOf: () => ({ key: 'end', kind: 'end', microBatches: 1, multiplyAdds }),
  });
}

type Slice = Extract<TraceEvent, { ph: 'X' }>;

function predict(...steps: readonly StepCosts[]): Slice[] {
  const events: TraceEvent[] = [];
  const process = new TraceProcess(2, 'predicted', (event) => events.push(event));
  const planned = steps.map((one) => ({ plan: PLAN, costs: one }));
  writePredicted(planned, 7, 1000, process);
  return events.filter((event) => event.ph === 'X');
}

it('equal steps are those of a simulation that repeats one', () => {
  const of = costs(1e8);
  const slices = predict(of, of, of);
  const { steps } = simulate({ plan: PLAN, repeat: 3 }, of);
  for (const [index, { start, finished, starts, ends }] of steps.entries()) {
    const own = slices.filter(({ args }) => args.step === 7 + index);
    const step = own.find(({ cat }) => cat === 'step')!;
    expect(step.ts).toBeCloseTo(1000 + start * 1e6, 2);
    expect(step.ts + step.dur).toBeCloseTo(1000 + finished * 1e6, 2);
    for (const { id, lane } of OPERATIONS) {
      const slice = own.find(({ args }) => 'operation' in args && args.operation === id)!;
      expect(slice.cat).toBe(id === 3 ? 'host' : lane);
      expect(slice.ts).toBeCloseTo(1000 + starts[id]! * 1e6, 2);
      expect(slice.ts + slice.dur).toBeCloseTo(1000 + ends[id]! * 1e6, 2);
    }
  }
});

it('each step has its own costs, and its lanes the seconds that transfers and kernels take', () => {
  const slices = predict(costs(1e8), costs(3e8));
  const steps = slices.filter(({ cat }) => cat === 'step');
  const seconds = steps.map(
    ({ args }) => ('busy_seconds' in args ? args.busy_seconds : undefined)!,
  );
  expect(seconds.map(({ compute }) => compute)).toEqual([4e-3, 12e-3]);
  const { links } = DEFAULT_COSTS;
  const taken = ({ bytesPerSecond, secondsPerPiece }: LinkCost, bytes: number): number =>
    bytes / bytesPerSecond + Math.ceil(bytes / 2 ** 20) * secondsPerPiece;
  for (const one of seconds) {
    // Nothing of what the update reads and writes.
    expect(one.nvme_read).toBeCloseTo(taken(links.nvme_read, 3e6), 9);
    expect(one.nvme_write).toBe(0);
    expect(one.upload).toBeGreaterThan(3e6 / links.upload.bytesPerSecond);
    expect(one.download).toBeGreaterThan(2e6 / links.download.bytesPerSecond);
  }
});

it('as many steps are predicted as take bounded work', () => {
  const operations = Array.from({ length: 90_000 }, () => OPERATIONS[1]!);
  const long = { plan: { operations, paramLoadCount: 0 } };
  expect(predictable([long, long, long, long])).toHaveLength(2);
  expect(predictable([])).toEqual([]);
  expect(predict()).toEqual([]);
});

it('throttled links are no faster than that', () => {
  const { links, ...rest } = throttledCosts(DEFAULT_COSTS, { upload: 1e6, nvme_read: 1e15 });
  const rates = LINKS.map((link): [Link, number] => [link, links[link].bytesPerSecond]);
  const known = DEFAULT_COSTS.links;
  expect(Object.fromEntries(rates)).toEqual({
    upload: 1e6,
    download: known.download.bytesPerSecond,
    nvme_read: known.nvme_read.bytesPerSecond,
    nvme_write: known.nvme_write.bytesPerSecond,
  });
  expect({ ...rest, links: known }).toEqual(DEFAULT_COSTS);
});

// Goal: the simulator follows the executor's rules: timelines worked out by hand, bounds that hold
// for every plan, and no run that a cheaper machine would shorten.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LANES, LINKS, type Lane, type Link } from '../../core/types.js';
import type { StepCosts } from '../../src/plan/costs.js';
import { simulate, type SimulationRules } from '../../src/plan/simulate.js';
import type { Action, Operation, StepPlan } from '../../src/plan/step-plan.js';
import type { Timeline } from '../../src/plan/timeline.js';

/** Bytes per second of every link in the plans below; durations are given as bytes. */
const RATE = 1000;

/** Costs by which a compute operation lasts `tile` seconds, and links move RATE bytes a second. */
function costs(rules: Partial<SimulationRules> = {}, slower: Partial<Record<Link, number>> = {}) {
  const link = (name: Link) => ({
    bytesPerSecond: RATE / (slower[name] ?? 1),
    secondsPerPiece: 0,
  });
  return {
    workers: 1,
    links: Object.fromEntries(LINKS.map((name) => [name, link(name)])) as StepCosts['links'],
    computeSeconds: ({ action }) => (action.kind === 'forward-tile' ? action.tile : 0),
    updateElementsPerSecond: 1,
    ...rules,
  } satisfies StepCosts;
}

type Draft = Omit<Partial<Operation>, 'action'> & { readonly action: Action };

function planOf(...drafts: readonly Draft[]): StepPlan {
  const operations = drafts.map((draft, id): Operation => ({
    id,
    lane: laneOf(draft),
    phase: 'forward',
    bytes: {},
    after: [],
    ...draft,
  }));
  return { operations, paramLoadCount: 0 };
}

function laneOf({ action }: Draft): Lane {
  switch (action.kind) {
    case 'norm':
    case 'update':
      return 'update';
    case 'fetch-params':
      return 'upload';
    case 'spill-activation':
      return 'download';
    default:
      return 'compute';
  }
}

const compute = (seconds: number, more: Partial<Operation> = {}): Draft => ({
  action: { kind: 'forward-tile', tile: seconds, microBatches: [0], offset: 0 },
  ...more,
});

/** Seconds on each link. */
const fetch = (upload: number, read = 0, more: Partial<Operation> = {}): Draft => ({
  action: { kind: 'fetch-params', block: 0, offset: 0 },
  bytes: { upload: upload * RATE, ...(read > 0 && { nvme_read: read * RATE }) },
  ...more,
});

const spill = (download: number, write = 0, more: Partial<Operation> = {}): Draft => ({
  action: { kind: 'spill-activation', block: 0, microBatch: 0, operation: 0 },
  bytes: { download: download * RATE, ...(write > 0 && { nvme_write: write * RATE }) },
  ...more,
});

const update = (seconds: number, group: number, more: Partial<Operation> = {}): Draft => ({
  action: { kind: 'update', shard: 0, group, length: seconds },
  ...more,
});

const norm = (...after: number[]): Draft => ({ action: { kind: 'norm' }, after });

/** [start, end] of each operation of a step. */
function spans({ steps }: Timeline, step = 0): [number, number][] {
  const { starts, ends } = steps[step]!;
  return [...starts].map((start, id) => [start, ends[id]!]);
}

const once = (plan: StepPlan, rules: Partial<SimulationRules> = {}): [number, number][] =>
  spans(simulate([plan], costs(rules)));

describe('timelines worked out by hand', () => {
  it('runs compute in program order, though a later operation is ready first', () => {
    const plan = planOf(fetch(5), compute(1, { after: [0] }), compute(2));
    expect(once(plan)).toEqual([
      [0, 5],
      [5, 6],
      [6, 8],
    ]);
  });

  it('fetches the next parameters beside compute', () => {
    const plan = planOf(fetch(2), compute(3, { after: [0] }), fetch(2), compute(3, { after: [2] }));
    expect(once(plan)).toEqual([
      [0, 2],
      [2, 5],
      [2, 4],
      [5, 8],
    ]);
  });

  it('launches two operations, so that what the third waits for may come after the first', () => {
    // Operation 3 is launched when 1 is over; with it, what it frees.
    const plan = planOf(compute(1), compute(4), compute(1), compute(1));
    const timeline = simulate([plan], costs({ hostSeconds: () => 0.5 }));
    // The launches of 1, 2 and 3 are hidden behind what runs.
    expect(spans(timeline)).toEqual([
      [0.5, 1.5],
      [1.5, 5.5],
      [5.5, 6.5],
      [6.5, 7.5],
    ]);
  });

  it('lets others use the link while the host works on what a transfer brought', () => {
    const rules = { hostSeconds: (_step: number, { id }: Operation) => (id === 0 ? 4 : 0) };
    const plan = planOf(spill(2), spill(3), compute(1, { copied: [0] }));
    expect(once(plan, rules)).toEqual([
      [0, 6],
      [2, 5],
      [6, 7],
    ]);
  });

  it('keeps the upload link busy with what it copies within the device', () => {
    const copied = { pieces: 1, localBytes: 2 * RATE, checkedBytes: 0, addedBytes: 0 };
    const plan = planOf(fetch(0, 0, { bytes: {} }), fetch(1), compute(1, { after: [0, 1] }));
    const timeline = simulate([plan], {
      ...costs(),
      transferWork: ({ id }) => (id === 0 ? copied : { ...copied, localBytes: 0 }),
    });
    expect(spans(timeline)).toEqual([
      [0, 2],
      [2, 3],
      [3, 4],
    ]);
  });

  it('updates what streams from NVMe at the rate of the stream, and hands each shard over', () => {
    const bytes = { nvme_read: RATE, nvme_write: RATE };
    const plan = planOf(update(1, 0, { bytes }), update(5, 0, { bytes }), update(1, 0));
    const timeline = simulate([plan], {
      ...costs(),
      updateNvmeBytesPerSecond: RATE / 2,
      updateSecondsPerShard: 0.5,
    });
    expect(spans(timeline)).toEqual([
      [0, 4.5],
      [4.5, 10],
      [10, 11.5],
    ]);
  });

  it('gives a link to the lowest operation that waits once what is admitted has moved', () => {
    const first = fetch(4);
    const late = fetch(1, 0, { after: [0] });
    // 0, 1 are admitted; 3 comes when 0 is over, 2 was there before and is lower.
    const plan = planOf(compute(4), fetch(5), fetch(5), late, first, first);
    expect(once(plan)).toEqual([
      [0, 4],
      [0, 5],
      [5, 10],
      [10, 11],
      [11, 15],
      [15, 19],
    ]);
  });

  it('passes pieces from NVMe to the device one by one, two links at a time', () => {
    // Of more than a piece's bytes: four pieces of 1 MiB.
    const bytes = 4 * 2 ** 20;
    const plan = planOf({
      action: { kind: 'fetch-params', block: 0, offset: 0 },
      bytes: { upload: bytes, nvme_read: bytes },
    });
    const link = { bytesPerSecond: 2 ** 20, secondsPerPiece: 0 };
    const links = { upload: link, download: link, nvme_read: link, nvme_write: link };
    const seconds = (read: number) =>
      simulate([plan], { ...costs({ buffers: { read, write: 2 } }), links }).seconds;
    expect(seconds(2)).toBe(5); // Pipelined: four reads, then the last upload.
    expect(seconds(1)).toBe(8); // One buffer: a read, its upload, the next read.
  });

  it('writes pieces behind, and frees what they came from when the last is copied', () => {
    const plan = planOf(
      compute(1),
      spill(2, 6, { after: [0] }),
      compute(1, { copied: [1] }),
      compute(1, { after: [1] }),
    );
    expect(once(plan)).toEqual([
      [0, 1],
      [1, 9],
      [3, 4],
      [9, 10],
    ]);
  });

  it('updates on workers that share their arithmetic and move bytes beside it', () => {
    const io = { bytes: { nvme_read: 3 * RATE, nvme_write: 1 * RATE } };
    const plan = planOf(norm(), update(2, 0, { after: [0] }), update(2, 1, { after: [0], ...io }));
    expect(once(plan, { workers: 1 })).toEqual([
      [0, 0],
      [0, 2],
      [2, 5],
    ]);
    expect(once(plan, { workers: 2 })).toEqual([
      [0, 0],
      [0, 2],
      [2, 4],
    ]);
  });

  it('a disk that reads or writes takes turns with itself', () => {
    const plan = planOf(fetch(0, 3), compute(1), spill(0, 2, { after: [1] }));
    const rules = (nvmeSharing: number) => simulate([plan], costs({ nvmeSharing })).seconds;
    expect(rules(0)).toBe(3);
    expect(rules(1)).toBe(5);
  });

  it('lets the next step begin beside the update, group by group', () => {
    const plan = planOf(
      compute(1, { fences: [0] }),
      compute(1, { fences: [1] }),
      norm(0, 1),
      update(3, 0, { after: [2] }),
      update(3, 1, { after: [2] }),
    );
    const timeline = simulate({ plan, repeat: 3 }, costs());
    expect(spans(timeline, 0)).toEqual([
      [0, 1],
      [1, 2],
      [2, 2],
      [2, 5],
      [5, 8],
    ]);
    // Group 0 is updated at 5, group 1 at 8.
    expect(spans(timeline, 1)).toEqual([
      [5, 6],
      [8, 9],
      [9, 9],
      [9, 12],
      [12, 15],
    ]);
    expect(timeline.steps.map(({ start }) => start)).toEqual([0, 2, 9]);
    expect(timeline.steps.map(({ updated }) => updated)).toEqual([8, 15, 22]);
    expect(timeline.stepSeconds).toBe(7);
    expect(timeline.seconds).toBe(22);
    expect(timeline.limitedBy).toBe('update');
    // Of 2 … 8 and 9 … 15, compute ran in 5 … 6 and 12 … 13.
    expect(timeline.hiddenUpdateShare).toBeCloseTo(2 / 12, 12);
  });

  it('a step begins when the update of the step before the last one is over', () => {
    const plan = planOf(compute(1), norm(0), update(4, 0, { after: [1] }));
    const timeline = simulate({ plan, repeat: 4 }, costs());
    // Without fences nothing else holds the steps back.
    expect(timeline.steps.map(({ start }) => start)).toEqual([0, 1, 5, 9]);
  });
});

/** Random plans: operations that wait for earlier ones. */
const randomPlan: fc.Arbitrary<StepPlan> = fc
  .array(
    fc.record({
      kind: fc.constantFrom('compute', 'fetch', 'spill', 'update'),
      a: fc.integer({ min: 0, max: 9 }),
      b: fc.integer({ min: 0, max: 9 }),
      waits: fc.array(fc.nat(), { maxLength: 3 }),
      copies: fc.nat(),
    }),
    { minLength: 1, maxLength: 25 },
  )
  .map((items) => {
    const drafts: Draft[] = [];
    const spills: number[] = [];
    const plain: number[] = [];
    for (const [id, { kind, a, b, waits, copies }] of items.entries()) {
      const after = plain.length === 0 ? [] : waits.map((wait) => plain[wait % plain.length]!);
      const more = { after: [...new Set(after)].sort((x, y) => x - y) };
      const copied = spills.length === 0 ? [] : [spills[copies % spills.length]!];
      if (kind === 'compute') drafts.push(compute(a, { ...more, copied, fences: [b % 3] }));
      else if (kind === 'fetch') drafts.push(fetch(a, b, { ...more, fences: [b % 3] }));
      else if (kind === 'spill') drafts.push(spill(a, b, more));
      else {
        const bytes = { nvme_read: b * RATE, nvme_write: a * RATE };
        drafts.push(update(a, b % 3, { ...more, bytes }));
      }
      if (kind === 'spill') spills.push(id);
      if (kind !== 'update') plain.push(id);
    }
    return planOf(...drafts);
  });

type RandomRules = Omit<Required<SimulationRules>, 'hostSeconds' | 'sharedUpdates'> & {
  readonly host: number;
};

const randomRules: fc.Arbitrary<RandomRules> = fc.record({
  workers: fc.integer({ min: 1, max: 3 }),
  buffers: fc.record({
    read: fc.integer({ min: 1, max: 4 }),
    write: fc.integer({ min: 2, max: 4 }),
  }),
  host: fc.constantFrom(0, 0.25),
  nvmeSharing: fc.constantFrom(0, 0.5, 1),
});

const rulesOf = ({ host, ...rules }: RandomRules, scale = 1): SimulationRules => ({
  ...rules,
  hostSeconds: () => host * scale,
});

/** Seconds of the longest chain of operations that wait for one another within a step. */
function criticalPath({ operations }: StepPlan, of: StepCosts): number {
  const ends: number[] = [];
  for (const operation of operations) {
    const { id, after, lane, bytes } = operation;
    const links = LINKS.map((link) => (bytes[link] ?? 0) / of.links[link].bytesPerSecond);
    const own =
      lane === 'compute'
        ? of.computeSeconds(operation)
        : Math.max(0, ...links, operation.action.kind === 'update' ? operation.action.length : 0);
    ends[id] = own + after.reduce((most, other) => Math.max(most, ends[other]!), 0);
  }
  return Math.max(0, ...ends);
}

describe('whatever the plan', () => {
  it('all operations run, none before what it waits for, no lane faster than it can', () => {
    fc.assert(
      fc.property(
        randomPlan,
        randomRules,
        fc.integer({ min: 1, max: 3 }),
        (plan, rules, repeat) => {
          const of = costs(rulesOf(rules));
          const timeline = simulate({ plan, repeat }, of);
          expect(timeline.steps).toHaveLength(repeat);
          for (const { starts, ends, start, finished, updated } of timeline.steps) {
            for (const { id, after } of plan.operations) {
              expect(starts[id]).toBeGreaterThanOrEqual(start);
              expect(ends[id]).toBeGreaterThanOrEqual(starts[id]!);
              for (const other of after) expect(starts[id]).toBeGreaterThanOrEqual(ends[other]!);
            }
            expect(updated).toBe(Math.max(...ends));
            expect(finished).toBeLessThanOrEqual(updated);
          }
          const tolerance = 1 + 1e-9;
          for (const lane of LANES) {
            expect(timeline.busySeconds[lane]).toBeLessThanOrEqual(timeline.seconds * tolerance);
          }
          for (const lane of LINKS) {
            const bytes = plan.operations.reduce((sum, one) => sum + (one.bytes[lane] ?? 0), 0);
            expect(timeline.busySeconds[lane]).toBeCloseTo((repeat * bytes) / RATE, 9);
          }
          expect(timeline.seconds * tolerance).toBeGreaterThanOrEqual(criticalPath(plan, of));
          const serial = LANES.reduce((sum, lane) => sum + timeline.busySeconds[lane], 0);
          const launches = repeat * plan.operations.length * rules.host;
          expect(timeline.seconds).toBeLessThanOrEqual(
            (serial * (1 + rules.nvmeSharing) + launches) * tolerance,
          );
        },
      ),
      { numRuns: 300 },
    );
  });

  it('a step alone lasts as long as it is scaled: twice the costs, twice the time', () => {
    fc.assert(
      fc.property(randomPlan, randomRules, (plan, rules) => {
        const slow = costs(rulesOf(rules, 2));
        const twice: StepCosts = {
          ...slow,
          links: costs({}, { upload: 2, download: 2, nvme_read: 2, nvme_write: 2 }).links,
          computeSeconds: (operation) => 2 * slow.computeSeconds(operation),
          updateElementsPerSecond: 0.5,
        };
        const plain = simulate({ plan, repeat: 2 }, costs(rulesOf(rules))).seconds;
        expect(simulate({ plan, repeat: 2 }, twice).seconds).toBeCloseTo(2 * plain, 6);
      }),
      { numRuns: 200 },
    );
  });
});

// Goal: whatever time compute stands still is told once, and blamed on what really kept it.
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Lane } from '../../core/types.js';
import type { Span } from '../../src/engine/step-executor.js';
import type { Operation } from '../../src/plan/step-plan.js';
import { StallTracker, type Stall } from '../../src/train/trace/stall-tracker.js';

/** What matters of an operation here. */
type Sketch = Partial<Pick<Operation, 'after' | 'copied' | 'fences'>>;

const compute = (id: number, sketch: Sketch = {}): Operation => ({
  id,
  lane: 'compute',
  phase: 'forward',
  action: { kind: 'end', microBatch: 0 },
  bytes: {},
  after: [],
  ...sketch,
});

const fetch = (id: number, sketch: Sketch = {}): Operation => ({
  ...compute(id, sketch),
  lane: 'upload',
  action: { kind: 'fetch-params', block: id, offset: 0 },
});

const spill = (id: number, sketch: Sketch = {}): Operation => ({
  ...compute(id, sketch),
  lane: 'download',
  bytes: { download: 4, nvme_write: 4 },
  action: { kind: 'write-gradients', block: id, operation: 0, first: true },
});

const update = (id: number, group: number): Operation => ({
  ...compute(id),
  lane: 'update',
  phase: 'update',
  action: { kind: 'update', shard: group, group, length: 1 },
});

const span = (
  operation: Operation,
  start: number,
  end: number,
  lane: Lane = operation.lane,
  step = 1,
): Span => ({ step, operation, lane, start, end, bytes: 0 });

/** `start-end cause`, cause as `lane operation`, `lane operation of step` or the host's word. */
function told(stalls: readonly Stall[]): string[] {
  return stalls.map(({ start, end, step, cause }) => {
    if (typeof cause === 'string') return `${start}-${end} ${cause}`;
    const of = cause.step === step ? '' : ` of ${cause.step}`;
    return `${start}-${end} ${cause.lane} ${cause.operation.id}${of}`;
  });
}

function track(spans: readonly Span[]): string[] {
  const tracker = new StallTracker();
  return told(spans.flatMap((one) => tracker.note(one)));
}

it('blames what was over last, on the lane where it was busy longest, then the host', () => {
  const [a, b, c] = [fetch(0), fetch(1), compute(2, { after: [0, 1] })];
  expect(
    track([
      span(a, 0, 4),
      span(b, 1, 8, 'nvme_read'),
      span(b, 8, 9),
      span(c, 11, 12),
      span(compute(3, { after: [2] }), 12, 14),
      span(compute(4, { after: [3] }), 15, 16),
    ]),
  ).toEqual(['0-9 nvme_read 1', '9-11 launch', '14-15 launch']);
});

it('goes back to what the blamed one had waited for', () => {
  const read = fetch(2, { after: [1] });
  const write = spill(1, { after: [0] });
  expect(
    track([
      span(compute(0), 0, 10),
      span(write, 10, 14),
      span(write, 14, 20, 'nvme_write'),
      span(read, 20, 23),
      span(compute(3, { after: [0, 2] }), 23, 24),
    ]),
  ).toEqual(['10-20 nvme_write 1', '20-23 upload 2']);
});

it('of a spill that only had to read the device, no more than that is blamed', () => {
  const write = spill(1, { after: [0] });
  expect(
    track([
      span(compute(0), 0, 10),
      span(write, 10, 14),
      span(write, 14, 16, 'nvme_write'),
      span(compute(2, { copied: [1] }), 17, 18),
    ]),
  ).toEqual(['10-14 download 1', '14-17 launch']);
});

it('tells the end of a step, its caller and the update of the step before apart', () => {
  const fenced = fetch(0, { fences: [7] });
  expect(
    track([
      span(compute(0), 0, 10),
      span(spill(1, { after: [0] }), 10, 13),
      // The next step begins at 15 with a fetch of another block.
      span(fetch(1), 15, 16, 'upload', 2),
      span(update(2, 7), 13, 19),
      span(fenced, 19, 21, 'upload', 2),
      span(compute(2, { after: [0, 1] }), 22, 23, 'compute', 2),
    ]),
  ).toEqual(['10-19 update 2 of 1', '19-21 upload 0', '21-22 launch']);
  expect(
    track([
      span(compute(0), 0, 10),
      span(spill(1, { after: [0] }), 10, 13),
      span(fetch(0), 15, 16, 'upload', 2),
      span(compute(1, { after: [0] }), 16, 17, 'compute', 2),
    ]),
  ).toEqual(['10-13 download 1 of 1', '13-15 between', '15-16 upload 0']);
});

it('what a run does between steps is nobody’s wait', () => {
  const tracker = new StallTracker();
  tracker.note(span(compute(0), 0, 10));
  tracker.skipTo(50);
  tracker.note(span(fetch(0), 52, 55, 'upload', 2));
  expect(told(tracker.note(span(compute(1, { after: [0] }), 55, 56, 'compute', 2)))).toEqual([
    '50-52 between',
    '52-55 upload 0',
  ]);
});

it('a kernel whose end is told after that of the next is waited for', () => {
  const [load, first, second] = [fetch(0), compute(1, { after: [0] }), compute(2, { after: [1] })];
  expect(
    track([
      span(load, 0, 5),
      span(second, 6.5, 6.75),
      span(first, 7, 8),
      span(compute(3, { after: [2] }), 9, 10),
    ]),
  ).toEqual(['0-5 upload 0', '5-7 launch', '8-9 launch']);
});

/** A random program: what each operation waits for, how long it takes, and how late it starts. */
const program = fc
  .array(
    fc.record({
      isCompute: fc.boolean(),
      waits: fc.array(fc.nat(6), { maxLength: 3 }),
      takes: fc.integer({ min: 1, max: 9 }),
      late: fc.constantFrom(0, 0, 0, 2),
    }),
    { minLength: 2, maxLength: 40 },
  )
  .map((sketches) => {
    const ends: number[] = [];
    let computed: number | undefined;
    return sketches.map(({ isCompute, waits, takes, late }, id) => {
      const after = [...new Set(waits.map((ago) => id - 1 - ago))].filter((one) => one >= 0);
      const before = isCompute && computed !== undefined ? [computed] : [];
      const ready = Math.max(0, ...[...after, ...before].map((one) => ends[one]!));
      const start = ready + late;
      ends.push(start + takes);
      if (isCompute) computed = id;
      const operation = isCompute ? compute(id, { after }) : fetch(id, { after });
      return { span: span(operation, start, start + takes), ready };
    });
  });

it('stalls and compute tile the time, and whoever is blamed was then under way', () => {
  fc.assert(
    fc.property(program, (runs) => {
      const tracker = new StallTracker();
      const spans = runs.map((run) => run.span).sort((a, b) => a.end - b.end);
      const stalls = spans.flatMap((one) => tracker.note(one));
      const kernels = spans.filter(({ lane }) => lane === 'compute');
      if (kernels.length === 0) return;
      const pieces = [...stalls, ...kernels].sort((a, b) => a.start - b.start || a.end - b.end);
      for (const [index, piece] of pieces.entries()) {
        if (index > 0) expect(piece.start).toBe(pieces[index - 1]!.end);
      }
      for (const { start, end, cause } of stalls) {
        if (typeof cause === 'string') continue;
        const { span: blamed } = runs[cause.operation.id]!;
        expect(blamed.end).toBeGreaterThanOrEqual(end);
        // Nothing that it waited for was still to come.
        for (const id of cause.operation.after) {
          expect(runs[id]!.span.end).toBeLessThanOrEqual(start);
        }
      }
      // The host is blamed for no more than it was late with kernels, or after a step's begin.
      const late = kernels.reduce((sum, { operation, start }) => {
        const { ready } = runs[operation.id]!;
        return sum + start - ready;
      }, 0);
      const host = stalls.filter(({ cause }) => cause === 'launch');
      expect(host.reduce((sum, { start, end }) => sum + end - start, 0)).toBeLessThanOrEqual(late);
    }),
    { numRuns: 500 },
  );
});

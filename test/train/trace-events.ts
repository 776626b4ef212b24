/**
 * @file A validator of Chrome trace files: the format's rules, and ours on tracks and arrows.
 */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { LANES, LINKS, TIERS, type Lane } from '../../core/types.js';
import { PHASES } from '../../src/plan/step-plan.js';

const place = { pid: z.literal([1, 2]), tid: z.int().nonnegative() };
const timed = { ...place, name: z.string().min(1), cat: z.string().min(1), ts: z.number().min(0) };
const step = z.int().positive();
const track = z.enum([...LANES, 'host']);
const bytes = z.partialRecord(z.enum(LINKS), z.int().positive());
const seconds = z.number().nonnegative();

const span = { ph: z.literal('X'), ...timed, dur: z.number().nonnegative() };

/** By category; other arguments than these are mistakes. */
const slice = z.discriminatedUnion('cat', [
  z.strictObject({
    ...span,
    cat: track,
    args: z.strictObject({
      step: z.int().nonnegative(),
      evaluation: z.literal(true).optional(),
      operation: z.int().nonnegative(),
      action: z.string(),
      phase: z.enum(PHASES),
      block: z.int().nonnegative().optional(),
      micro_batch: z.int().nonnegative().optional(),
      micro_batches: z.array(z.int().nonnegative()).optional(),
      tile: z.int().nonnegative().optional(),
      shard: z.int().nonnegative().optional(),
      group: z.int().nonnegative().optional(),
      param: z.string().optional(),
      bytes,
    }),
  }),
  z.strictObject({
    ...span,
    cat: z.literal('step'),
    args: z.strictObject({
      step,
      busy_seconds: z
        .strictObject(
          Object.fromEntries(['compute' as const, ...LINKS].map((name) => [name, seconds])),
        )
        .optional(),
    }),
  }),
  z.strictObject({
    ...span,
    cat: z.literal('interlude'),
    name: z.enum(['evaluation', 'checkpoint']),
    args: z.strictObject({ step: z.int().nonnegative() }),
  }),
  z.strictObject({
    ...span,
    cat: z.literal('stall'),
    args: z.union([
      z.strictObject({ step }),
      z.strictObject({ step, lane: track, for_step: step, for_operation: z.int().nonnegative() }),
    ]),
  }),
]);

const counter = z.strictObject({
  ph: z.literal('C'),
  ...timed,
  name: z.enum(TIERS),
  args: z.strictObject({ bytes: z.int().nonnegative() }),
});

const event = z.union([
  z.strictObject({
    ph: z.literal('M'),
    ...place,
    name: z.enum(['process_name', 'thread_name']),
    args: z.strictObject({ name: z.string().min(1) }),
  }),
  z.strictObject({
    ph: z.literal('M'),
    ...place,
    name: z.enum(['process_sort_index', 'thread_sort_index']),
    args: z.strictObject({ sort_index: z.int() }),
  }),
  slice,
  z.strictObject({ ph: z.literal('s'), ...timed, id: z.int() }),
  z.strictObject({ ph: z.literal('f'), ...timed, id: z.int(), bp: z.literal('e') }),
  counter,
]);

const trace = z.strictObject({
  displayTimeUnit: z.enum(['ms', 'ns']),
  otherData: z.strictObject({
    device: z.string(),
    budget_bytes: z.strictObject(
      Object.fromEntries(TIERS.map((tier) => [tier, z.int().nonnegative()])),
    ),
    default_costs: z.array(z.string()),
  }),
  traceEvents: z.array(event),
});

type AnySlice = z.infer<typeof slice>;

/** Of one category. */
export type SliceOf<C extends AnySlice['cat']> = Extract<AnySlice, { cat: C }>;

/** A piece of an operation, or a whole one. */
export type Slice = SliceOf<Lane | 'host'>;

/** One process, taken apart. */
export interface CheckedProcess {
  readonly operations: readonly Slice[];
  readonly steps: readonly SliceOf<'step'>[];
  readonly interludes: readonly SliceOf<'interlude'>[];
  readonly stalls: readonly SliceOf<'stall'>[];
  /** Names of tracks, by thread. */
  readonly tracks: ReadonlyMap<number, string>;
}

/** A trace, taken apart. */
export interface CheckedTrace extends CheckedProcess {
  readonly budgets: Readonly<Record<string, number>>;
  readonly predicted: CheckedProcess;
  readonly counters: readonly z.infer<typeof counter>[];
  /** From the slice where an arrow begins to that where it ends. */
  readonly arrows: readonly { readonly from: Slice; readonly to: Slice }[];
}

/** Microseconds as whole nanoseconds, which compare exactly. */
const nanoseconds = (microseconds: number): number => Math.round(microseconds * 1000);

const endOf = ({ ts, dur }: AnySlice): number => nanoseconds(ts) + nanoseconds(dur);

function groupBy<T>(items: readonly T[], keyOf: (item: T) => number): Map<number, T[]> {
  const groups = new Map<number, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}

type AnyEvent = z.infer<typeof event>;

const ofPhase = <P extends AnyEvent['ph']>(events: readonly AnyEvent[], ph: P) =>
  events.filter((one): one is Extract<AnyEvent, { ph: P }> => one.ph === ph);

const isOperation = (one: AnySlice): one is Slice => track.safeParse(one.cat).success;

/** Rules of one process: it and its tracks are named once, and nothing on a track overlaps. */
function checkProcess(events: readonly AnyEvent[]): CheckedProcess {
  const tracks = new Map<number, string>();
  const sorted = new Set<number>();
  let names = 0;
  for (const { name, tid, args } of ofPhase(events, 'M')) {
    if (name === 'process_name') names += 1;
    else if (name === 'thread_sort_index') sorted.add(tid);
    else if (name === 'thread_name') {
      if (tracks.has(tid)) throw new Error(`track ${tid} has two names`);
      tracks.set(tid, args.name);
    }
  }
  const slices = ofPhase(events, 'X');
  if (names !== (slices.length > 0 ? 1 : names)) throw new Error('a process has one name');
  for (const [tid, own] of groupBy(slices, (one) => one.tid)) {
    if (!tracks.has(tid) || !sorted.has(tid)) throw new Error(`track ${tid} has no name or place`);
    own.sort((a, b) => a.ts - b.ts);
    for (const [index, next] of own.entries()) {
      const before = own[index - 1];
      if (before === undefined || endOf(before) <= nanoseconds(next.ts)) continue;
      throw new Error(`${tracks.get(tid)}: ${before.name} and ${next.name} overlap`);
    }
  }
  const of = <C extends AnySlice['cat']>(cat: C) =>
    slices.filter((one): one is SliceOf<C> => one.cat === cat);
  return {
    operations: slices.filter(isOperation),
    steps: of('step'),
    interludes: of('interlude'),
    stalls: of('stall'),
    tracks,
  };
}

/** Arrows begin and end strictly within one slice each, as viewers demand, and lead forward. */
function checkArrows(
  events: readonly AnyEvent[],
  slices: readonly Slice[],
): CheckedTrace['arrows'] {
  const byTrack = groupBy(slices, ({ tid }) => tid);
  const around = ({ tid, ts }: { tid: number; ts: number }): Slice => {
    const at = nanoseconds(ts);
    const found = (byTrack.get(tid) ?? []).filter(
      (one) => nanoseconds(one.ts) <= at && at < endOf(one),
    );
    if (found.length !== 1) throw new Error(`${found.length} slices around ${ts} on ${tid}`);
    return found[0]!;
  };
  const ends = groupBy(ofPhase(events, 'f'), ({ id }) => id);
  const begins = ofPhase(events, 's');
  if (ends.size !== begins.length) throw new Error('arrows that begin and end');
  return begins.map((begin) => {
    const [end, ...more] = ends.get(begin.id) ?? [];
    if (end === undefined || more.length > 0) throw new Error(`ends of arrow ${begin.id}`);
    if (end.ts < begin.ts || end.cat !== begin.cat || end.name !== begin.name) {
      throw new Error(`arrow ${begin.id} leads back or elsewhere`);
    }
    return { from: around(begin), to: around(end) };
  });
}

/** Reads and checks a file. @throws an Error that says what is wrong */
export function checkTrace(path: string): CheckedTrace {
  const { traceEvents: events, otherData } = trace.parse(JSON.parse(readFileSync(path, 'utf8')));
  const [measured, predicted] = [1, 2].map((pid) => events.filter((one) => one.pid === pid));
  const process = checkProcess(measured!);
  return {
    ...process,
    budgets: otherData.budget_bytes,
    predicted: checkProcess(predicted!),
    counters: ofPhase(measured!, 'C'),
    arrows: checkArrows(measured!, process.operations),
  };
}

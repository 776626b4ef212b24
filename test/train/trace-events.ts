/**
 * @file A validator of Chrome trace files: the format's rules, and ours on tracks and arrows.
 */
import { readFileSync } from 'node:fs';
import { z } from 'zod';

const place = { pid: z.int().positive(), tid: z.int().nonnegative() };
const timed = { ...place, name: z.string().min(1), cat: z.string().min(1), ts: z.number().min(0) };

const slice = z.strictObject({
  ph: z.literal('X'),
  ...timed,
  dur: z.number().min(0),
  args: z.looseObject({
    step: z.int().positive(),
    operation: z.int().nonnegative().optional(),
    action: z.string().optional(),
    block: z.int().nonnegative().optional(),
    bytes: z.record(z.string(), z.int().positive()).optional(),
  }),
});

const counter = z.strictObject({
  ph: z.literal('C'),
  ...timed,
  args: z.strictObject({ bytes: z.int().nonnegative() }),
});

const event = z.discriminatedUnion('ph', [
  z.strictObject({
    ph: z.literal('M'),
    ...place,
    name: z.enum(['process_name', 'thread_name', 'thread_sort_index']),
    args: z.union([z.strictObject({ name: z.string() }), z.strictObject({ sort_index: z.int() })]),
  }),
  slice,
  z.strictObject({ ph: z.literal('s'), ...timed, id: z.int() }),
  z.strictObject({ ph: z.literal('f'), ...timed, id: z.int(), bp: z.literal('e') }),
  counter,
]);

const trace = z.strictObject({
  displayTimeUnit: z.enum(['ms', 'ns']),
  otherData: z.looseObject({ budget_bytes: z.record(z.string(), z.int().nonnegative()) }),
  traceEvents: z.array(event),
});

export type Slice = z.infer<typeof slice>;

/** A trace, taken apart. */
export interface CheckedTrace {
  readonly budgets: Readonly<Record<string, number>>;
  readonly slices: readonly Slice[];
  readonly counters: readonly z.infer<typeof counter>[];
  /** Names of tracks, by thread. */
  readonly tracks: ReadonlyMap<number, string>;
  /** From the slice where an arrow begins to that where it ends. */
  readonly arrows: readonly { readonly from: Slice; readonly to: Slice }[];
}

/** Microseconds as whole nanoseconds, which compare exactly. */
const nanoseconds = (microseconds: number): number => Math.round(microseconds * 1000);

const endOf = ({ ts, dur }: Slice): number => nanoseconds(ts) + nanoseconds(dur);

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

/** Reads and checks a file. @throws an Error that says what is wrong */
export function checkTrace(path: string): CheckedTrace {
  const { traceEvents: events, otherData } = trace.parse(JSON.parse(readFileSync(path, 'utf8')));
  const of = <P extends (typeof events)[number]['ph']>(ph: P) =>
    events.filter((one): one is Extract<(typeof events)[number], { ph: P }> => one.ph === ph);
  const slices = of('X');
  const tracks = new Map<number, string>();
  for (const { name, tid, args } of of('M')) {
    if (name === 'thread_name' && 'name' in args) tracks.set(tid, args.name);
  }
  const byTrack = groupBy(slices, ({ tid }) => tid);
  for (const [tid, own] of byTrack) {
    if (!tracks.has(tid)) throw new Error(`track ${tid} has no name`);
    own.sort((a, b) => a.ts - b.ts);
    for (const [index, next] of own.entries()) {
      const before = own[index - 1];
      if (before === undefined || endOf(before) <= nanoseconds(next.ts)) continue;
      throw new Error(`${tracks.get(tid)}: ${before.name} and ${next.name} overlap`);
    }
  }
  const around = ({ tid, ts }: { tid: number; ts: number }): Slice => {
    const own = byTrack.get(tid) ?? [];
    const at = nanoseconds(ts);
    const found = own.filter((one) => nanoseconds(one.ts) <= at && at <= endOf(one));
    if (found.length !== 1) throw new Error(`${found.length} slices around ${ts} on ${tid}`);
    return found[0]!;
  };
  const ends = groupBy(of('f'), ({ id }) => id);
  const begins = of('s');
  if (ends.size !== begins.length) throw new Error('arrows that begin and end');
  const arrows = begins.map((begin) => {
    const [end, ...more] = ends.get(begin.id) ?? [];
    if (end === undefined || more.length > 0) throw new Error(`ends of arrow ${begin.id}`);
    if (end.ts < begin.ts || end.cat !== begin.cat || end.name !== begin.name) {
      throw new Error(`arrow ${begin.id} leads back or elsewhere`);
    }
    return { from: around(begin), to: around(end) };
  });
  return { budgets: otherData.budget_bytes, slices, counters: of('C'), tracks, arrows };
}

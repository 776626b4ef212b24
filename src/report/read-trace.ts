/**
 * @file What a report shows of a trace: one step's slices by lane, and the bytes held.
 *
 * Read line by line, twice: steps are written behind their slices. Memory holds the slices of one
 * step and the counters.
 */
import { open } from 'node:fs/promises';
import { LANES, TIERS, type Lane, type Tier } from '../../core/types.js';
import { exists } from '../checkpoint/file-errors.js';
import { readJsonl } from '../data/read-jsonl.js';
import { clip, type Interval } from './intervals.js';
import { corrupt } from './read-run.js';

/** One piece of work on a lane. */
export interface ReportedSlice extends Interval {
  readonly name: string;
  readonly phase: string;
}

/** Bytes held from `time` on. */
export interface HeldBytes {
  readonly time: number;
  readonly bytes: number;
}

/** Times are microseconds of the trace. */
export interface ReportedTrace {
  /** The step that is shown, and when: until the next one begins, where that is known. */
  readonly step: number;
  readonly window: Interval;
  /** Whatever ran in the window, of whichever step. */
  readonly slices: Readonly<Record<Lane, readonly ReportedSlice[]>>;
  readonly held: Readonly<Record<Tier, readonly HeldBytes[]>>;
  /** When each recorded step was under way. */
  readonly steps: ReadonlyMap<number, Interval>;
}

/** How our traces begin; another file would have to be read whole to be understood. */
const HEAD = '{"displayTimeUnit":"ms","otherData":';

const MAX_LINE_BYTES = 2 ** 20;

interface RawEvent {
  readonly ph?: unknown;
  readonly name?: unknown;
  readonly cat?: unknown;
  readonly ts?: unknown;
  readonly dur?: unknown;
  readonly args?: Readonly<Record<string, unknown>>;
}

/**
 * Reads a trace; undefined where there is none, or none with a complete step.
 *
 * @throws RUN_CORRUPT for another file; DATA_INVALID, IO_ERROR
 */
export async function readTrace(path: string): Promise<ReportedTrace | undefined> {
  if (!(await exists(path))) return undefined;
  await checkHead(path);
  const steps = new Map<number, Interval>();
  for await (const event of eventsOf(path)) {
    const step = event.args?.['step'];
    if (event.cat === 'step' && typeof step === 'number') steps.set(step, intervalOf(path, event));
  }
  const shown = chooseStep(steps);
  if (shown === undefined) return undefined;
  const slices = Object.fromEntries(LANES.map((lane) => [lane, []])) as unknown as Record<
    Lane,
    ReportedSlice[]
  >;
  const held: Record<Tier, HeldBytes[]> = { device: [], host: [], nvme: [] };
  for await (const event of eventsOf(path)) {
    if (event.ph === 'X') addSlice(path, event, shown.window, slices);
    else if (event.ph === 'C') addHeld(event, held);
  }
  return { ...shown, slices, held, steps };
}

async function checkHead(path: string): Promise<void> {
  const handle = await open(path);
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(HEAD.length), 0, HEAD.length, 0);
    // Empty where the run ended before its first step.
    if (bytesRead > 0 && buffer.toString('latin1') !== HEAD) {
      throw corrupt(path, 'is no trace of Spillway');
    }
  } finally {
    await handle.close();
  }
}

/** Events line by line; half a line at the end is what a killed run leaves. */
async function* eventsOf(path: string): AsyncGenerator<RawEvent, void, undefined> {
  let broken: string | undefined;
  for await (const { place, text } of readJsonl(path, { maxLineBytes: MAX_LINE_BYTES })) {
    if (text.startsWith(HEAD) || text === ']}') continue;
    if (broken !== undefined) throw corrupt(broken, 'is no event');
    try {
      yield JSON.parse(text.replace(/,$/, '')) as RawEvent;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      broken = place;
    }
  }
}

/** The last step whose end can be seen, for it is the steadiest; else the last one. */
function chooseStep(
  steps: ReadonlyMap<number, Interval>,
): Pick<ReportedTrace, 'step' | 'window'> | undefined {
  const numbers = [...steps.keys()].sort((a, b) => a - b);
  const step = numbers.at(-2) ?? numbers.at(-1);
  if (step === undefined) return undefined;
  const own = steps.get(step)!;
  const next = steps.get(step + 1);
  return { step, window: { start: own.start, end: next?.start ?? own.end } };
}

function intervalOf(path: string, { ts, dur }: RawEvent): Interval {
  const isTimed = Number.isFinite(ts) && Number.isFinite(dur) && (dur as number) >= 0;
  if (!isTimed) throw corrupt(path, 'has a slice without a time');
  return { start: ts as number, end: (ts as number) + (dur as number) };
}

function addSlice(
  path: string,
  event: RawEvent,
  window: Interval,
  slices: Record<Lane, ReportedSlice[]>,
): void {
  const lane = LANES.find((one) => one === event.cat);
  if (lane === undefined) return;
  const name = typeof event.name === 'string' ? event.name : '';
  const phase = event.args?.['phase'];
  for (const part of clip(intervalOf(path, event), window)) {
    slices[lane].push({ ...part, name, phase: typeof phase === 'string' ? phase : '' });
  }
}

function addHeld({ name, ts, args }: RawEvent, held: Record<Tier, HeldBytes[]>): void {
  const tier = TIERS.find((one) => name === `${one} bytes`);
  const bytes = args?.['bytes'];
  if (tier === undefined || typeof ts !== 'number' || typeof bytes !== 'number') return;
  held[tier].push({ time: ts, bytes });
}

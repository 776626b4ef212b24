/**
 * @file What a report shows of a trace: one step as it was measured and predicted, lane by lane, what
 * compute waited for, and the bytes held.
 *
 * Read line by line, twice: steps are written behind their slices. Memory holds the slices of one
 * step.
 */
import { open, stat } from 'node:fs/promises';
import { LANES, TIERS, type Lane, type Tier } from '../../core/types.js';
import { exists } from '../checkpoint/file-errors.js';
import { PHASES, type Phase } from '../plan/step-plan.js';
import { chooseStep, type ChosenStep, type StepIntervals } from './choose-step.js';
import { clip, type Interval } from './intervals.js';
import { corrupt, readError, readLines } from './read-lines.js';
import { Series } from './series.js';

/** One piece of work on a lane. */
export interface ReportedSlice extends Interval {
  readonly name: string;
  readonly phase: Phase | undefined;
  /** On the lane, or of the update. */
  readonly bytes: number;
}

/** A time in which compute stood still. */
export interface ReportedStall extends Interval {
  readonly name: string;
  /** What it waited for; undefined where the host kept it. */
  readonly lane: Lane | undefined;
}

export type LaneSlices = Readonly<Record<Lane, readonly ReportedSlice[]>>;

/** The same step as the plan predicts it; times are microseconds from its begin. */
export interface PredictedStep {
  readonly window: Interval;
  readonly slices: LaneSlices;
  /** Seconds in which kernels and transfers keep their lanes busy. */
  readonly busySeconds: Readonly<Partial<Record<Lane, number>>>;
}

/** Times are microseconds of the trace. */
export interface ReportedTrace extends ChosenStep {
  /** Whatever ran in the window, of whichever step. */
  readonly slices: LaneSlices;
  readonly stalls: readonly ReportedStall[];
  /** Undefined where a killed run left none. */
  readonly predicted: PredictedStep | undefined;
  readonly held: Readonly<Record<Tier, Series>>;
  readonly budgets: Readonly<Partial<Record<Tier, number>>>;
  /** When each recorded step was under way. */
  readonly steps: ReadonlyMap<number, Interval>;
  /** End of the last step. */
  readonly end: number;
  /** Costs that are not this machine's. */
  readonly defaultCosts: readonly string[];
}

/** How our traces begin; another file would have to be read whole to be understood. */
const HEAD = '{"displayTimeUnit":"ms","otherData":';

/** Beyond it no run of ours writes; see TraceOptions.maxBytes, and a prediction behind it. */
const MAX_BYTES = 2 ** 30;

/** The process of predictions, as src/train/trace numbers it. */
const PREDICTED = 2;

interface RawEvent {
  readonly ph?: unknown;
  readonly pid?: unknown;
  readonly name?: unknown;
  readonly cat?: unknown;
  readonly ts?: unknown;
  readonly dur?: unknown;
  readonly args?: Readonly<Record<string, unknown>>;
}

/**
 * Reads a trace; undefined where there is none, or none with a complete step.
 *
 * @throws RUN_CORRUPT for another file; IO_ERROR
 */
export async function readTrace(path: string): Promise<ReportedTrace | undefined> {
  if (!(await exists(path))) return undefined;
  const facts = await readHead(path);
  const overview = new Overview(path);
  for await (const event of eventsOf(path, isOverview)) overview.add(event);
  const chosen = chooseStep(overview.measured);
  if (chosen === undefined) return undefined;
  const reader = new StepReader(path, chosen, overview);
  for await (const event of eventsOf(path)) reader.add(event);
  return { ...chosen, ...facts, ...reader.result, steps: overview.measured.steps };
}

/** Steps, and what lies between them, of both processes. */
class Overview {
  readonly #path: string;
  readonly measured = { steps: new Map<number, Interval>(), interludes: [] as Interval[] };
  readonly predicted = new Map<number, Interval & { readonly busySeconds: unknown }>();

  constructor(path: string) {
    this.#path = path;
  }

  add(event: RawEvent): void {
    const step = event.args?.['step'];
    if (event.ph !== 'X' || typeof step !== 'number') return;
    const interval = intervalOf(this.#path, event);
    if (event.pid === PREDICTED) {
      this.predicted.set(step, { ...interval, busySeconds: event.args?.['busy_seconds'] });
    } else if (event.cat === 'step') {
      this.measured.steps.set(step, interval);
    } else {
      this.measured.interludes.push(interval);
    }
  }
}

/** Everything of one step, and the bytes held. */
class StepReader {
  readonly #path: string;
  readonly #chosen: ChosenStep;
  readonly #steps: StepIntervals['steps'];
  readonly #predicted: (Omit<PredictedStep, 'slices'> & { readonly origin: number }) | undefined;
  readonly #slices = noSlices();
  readonly #predictedSlices = noSlices();
  readonly #stalls: ReportedStall[] = [];
  readonly #held: Record<Tier, Series> = {
    device: new Series(),
    host: new Series(),
    nvme: new Series(),
  };

  constructor(path: string, chosen: ChosenStep, { measured, predicted }: Overview) {
    this.#path = path;
    this.#chosen = chosen;
    this.#steps = measured.steps;
    const own = predicted.get(chosen.step);
    if (own === undefined) return;
    const { start, busySeconds } = own;
    // To where the measured one goes: the next one's begin, or its own end.
    const next = chosen.isWhole ? predicted.get(chosen.step + 1)?.start : undefined;
    const window = { start: 0, end: (next ?? own.end) - start };
    this.#predicted = { origin: start, window, busySeconds: numbersOf(busySeconds) };
  }

  add(event: RawEvent): void {
    if (event.ph === 'C') this.#addHeld(event);
    if (event.ph !== 'X') return;
    const lane = LANES.find((one) => one === event.cat);
    if (event.pid === PREDICTED) {
      const predicted = this.#predicted;
      if (lane === undefined || predicted === undefined) return;
      const { start, end } = intervalOf(this.#path, event);
      const { origin } = predicted;
      const moved = { start: start - origin, end: end - origin };
      addSlices(this.#predictedSlices[lane], lane, event, clip(moved, predicted.window));
    } else if (lane !== undefined || event.cat === 'stall') {
      const parts = clip(intervalOf(this.#path, event), this.#chosen.window);
      if (lane === undefined) this.#addStalls(event, parts);
      else addSlices(this.#slices[lane], lane, event, parts);
    }
  }

  get result(): Pick<ReportedTrace, 'slices' | 'stalls' | 'predicted' | 'held' | 'end'> {
    const predicted = this.#predicted;
    return {
      slices: this.#slices,
      stalls: this.#stalls,
      predicted: predicted && { ...predicted, slices: this.#predictedSlices },
      held: this.#held,
      end: [...this.#steps.values()].reduce((last, { end }) => Math.max(last, end), 0),
    };
  }

  #addStalls({ name, args }: RawEvent, parts: readonly Interval[]): void {
    const lane = LANES.find((one) => one === args?.['lane']);
    for (const part of parts) this.#stalls.push({ ...part, name: textOf(name), lane });
  }

  #addHeld({ name, ts, args }: RawEvent): void {
    const tier = TIERS.find((one) => one === name);
    const bytes = args?.['bytes'];
    if (tier === undefined || typeof ts !== 'number' || typeof bytes !== 'number') return;
    this.#held[tier].add(ts, bytes);
  }
}

function addSlices(
  slices: ReportedSlice[],
  lane: Lane,
  { name, args }: RawEvent,
  parts: readonly Interval[],
): void {
  const phase = PHASES.find((one) => one === args?.['phase']);
  const moved = numbersOf(args?.['bytes']);
  const bytes = lane === 'compute' || lane === 'update' ? 0 : (moved[lane] ?? 0);
  for (const part of parts) slices.push({ ...part, name: textOf(name), phase, bytes });
}

/** Facts about the whole trace. */
async function readHead(path: string): Promise<Pick<ReportedTrace, 'budgets' | 'defaultCosts'>> {
  const head = await firstLine(path);
  // Empty where the run ended before its first step.
  if (head === '') return { budgets: {}, defaultCosts: [] };
  if (!head.startsWith(HEAD)) throw corrupt(path, 'is no trace of Spillway');
  const { otherData } = parse(`${head}]}`, path) as { otherData?: Record<string, unknown> };
  const costs = otherData?.['default_costs'];
  return {
    budgets: numbersOf(otherData?.['budget_bytes']),
    defaultCosts: Array.isArray(costs) ? costs.map(textOf) : [],
  };
}

/** @throws RUN_CORRUPT when it is no line of ours, or the file larger than any of ours */
async function firstLine(path: string): Promise<string> {
  try {
    const { size } = await stat(path);
    if (size > MAX_BYTES) throw corrupt(path, `is larger than ${MAX_BYTES} bytes`);
    const handle = await open(path);
    try {
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(HEAD_BYTES), 0, HEAD_BYTES, 0);
      const [line = ''] = buffer.toString('utf8', 0, bytesRead).split('\n', 1);
      return line;
    } finally {
      await handle.close();
    }
  } catch (error) {
    throw readError(path, error);
  }
}

/** More than the first line has. */
const HEAD_BYTES = 2 ** 14;

function parse(text: string, place: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw corrupt(place, 'is no event', error);
  }
}

/** Steps, and what lies between them. */
const isOverview = (text: string): boolean => /"cat":"(step|interlude)"/.test(text);

/** Events line by line; half a line at the end is what a killed run leaves. */
async function* eventsOf(
  path: string,
  wanted: (text: string) => boolean = () => true,
): AsyncGenerator<RawEvent, void, undefined> {
  let broken: string | undefined;
  for await (const { place, text } of readLines(path)) {
    if (text.startsWith(HEAD) || text === ']}') continue;
    if (broken !== undefined) throw corrupt(broken, 'is no event');
    if (!wanted(text)) continue;
    try {
      yield JSON.parse(text.replace(/,$/, '')) as RawEvent;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      broken = place;
    }
  }
}

function intervalOf(path: string, { ts, dur }: RawEvent): Interval {
  if (!isTime(ts) || !isTime(dur)) throw corrupt(path, 'has a slice without a time');
  return { start: ts, end: ts + dur };
}

/** Microseconds of which a million make no difference: three hundred years. */
const MOST_TIME = 1e16;

function isTime(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= MOST_TIME;
}

/** Longest name that is shown; names come from files and may hold anything. */
const NAME_LENGTH = 120;

function textOf(value: unknown): string {
  if (typeof value !== 'string') return '';
  return value.length > NAME_LENGTH ? `${value.slice(0, NAME_LENGTH)}…` : value;
}

/** The numbers among an object's members. */
function numbersOf(value: unknown): Record<string, number> {
  if (typeof value !== 'object' || value === null) return {};
  return Object.fromEntries(
    Object.entries(value).filter((entry): entry is [string, number] => Number.isFinite(entry[1])),
  );
}

function noSlices(): Record<Lane, ReportedSlice[]> {
  return Object.fromEntries(LANES.map((lane) => [lane, []])) as unknown as Record<
    Lane,
    ReportedSlice[]
  >;
}

/**
 * @file Records the first steps of a run: spans of the executor become slices, arrows and counters.
 *
 * A track per lane, and more where a lane runs several pieces at once; a track of whole steps above
 * them. An arrow leads from each fetch to the compute operation that uses it. Counters are the
 * bytes held in each tier, read whenever something ends; within an operation more may be held, as
 * the peaks of summary.json say.
 *
 * A trace that cannot be written ends with a warning; the run goes on. Owns the file.
 */
import { formatError } from '../../../core/errors.js';
import type { Logger } from '../../../core/logger.js';
import { LANES, TIERS, type Lane, type Tier } from '../../../core/types.js';
import type { Engine } from '../../engine/engine.js';
import type { Span } from '../../engine/step-executor.js';
import type { Action, OperationId } from '../../plan/step-plan.js';
import { SubTracks } from './sub-tracks.js';
import type { SliceArguments, TraceEvent } from './trace-event.js';
import { TraceFile } from './trace-file.js';

/** What is to be recorded, and where. */
export interface TraceOptions {
  readonly path: string;
  /** Steps, from the first one on. */
  readonly steps: number;
  readonly logger: Logger;
}

/** What counters are read from. */
export type TracedEngine = Pick<Engine, 'heldBytes' | 'budgetBytes' | 'deviceName'>;

const PROCESS = 1;

/** Thread of the whole steps. */
const STEP_TRACK = 1;

/** Threads between one lane's first and the next lane's; more than a lane runs at once. */
const TRACKS_PER_LANE = 1000;

/** Where an arrow begins. */
interface ArrowStart {
  readonly tid: number;
  readonly ts: number;
}

export class TraceRecorder {
  readonly #options: TraceOptions;
  readonly #tracks: Readonly<Record<Lane, SubTracks>>;
  readonly #named = new Set<number>();
  readonly #held: Record<Tier, number> = { device: -1, host: -1, nvme: -1 };
  /** Fetches of the step under way, by operation: the slice that completed each. */
  readonly #fetches = new Map<OperationId, ArrowStart>();
  /** Where the steps lie that are not complete. */
  readonly #steps = new Map<number, { start: number; end: number }>();
  #file: TraceFile | undefined;
  #engine: TracedEngine | undefined;
  #origin = 0;
  #firstStep: number | undefined;
  #fetchStep = 0;
  #arrows = 0;

  /** Opens the file. @throws PATH_UNWRITABLE, OUTPUT_FULL, IO_ERROR */
  constructor(options: TraceOptions) {
    this.#options = options;
    this.#file = new TraceFile(options.path);
    const tracks = LANES.map((lane) => [lane, new SubTracks()] as const);
    this.#tracks = Object.fromEntries(tracks) as Record<Lane, SubTracks>;
  }

  /** Begins the trace of an engine that has taken no step; spans come from now on. */
  begin(engine: TracedEngine): void {
    this.#engine = engine;
    this.#origin = performance.now();
    this.#guarded((file) => {
      file.begin({ device: engine.deviceName, budget_bytes: engine.budgetBytes });
      file.write(this.#metadata('process_name', 0, { name: 'spillway' }));
      this.#name(file, STEP_TRACK, 'step');
      this.#count(file);
    });
  }

  /** Records a span; for `EngineOptions.execution`. */
  readonly onSpan = (span: Span): void => {
    if (span.isEvaluation === true) return; // It is no part of a step.
    if (this.#engine === undefined) return;
    this.#firstStep ??= span.step;
    if (span.step >= this.#firstStep + this.#options.steps) return;
    this.#guarded((file) => {
      this.#record(file, span);
      this.#count(file);
    });
  };

  /** A step and its update are complete. After the last step to record the file is, too. */
  committed(step: number): void {
    const { steps } = this.#options;
    this.#guarded((file) => {
      const extent = this.#steps.get(step);
      this.#steps.delete(step);
      if (extent === undefined) return;
      file.write(this.#slice(`step ${step}`, 'step', STEP_TRACK, extent, { step }));
      if (step - (this.#firstStep ?? step) + 1 >= steps) this.#end(file);
    });
  }

  /** Completes the file, if it is not. Idempotent. */
  close(): void {
    this.#guarded((file) => {
      this.#end(file);
    });
  }

  #end(file: TraceFile): void {
    this.#file = undefined;
    file.end();
  }

  /** Writes while there is a file to write to. */
  #guarded(write: (file: TraceFile) => void): void {
    const file = this.#file;
    if (file === undefined) return;
    try {
      write(file);
    } catch (error) {
      this.#file = undefined;
      file.abandon();
      const { logger, path } = this.#options;
      logger.warn(`the trace ${path} ends early; the run goes on: ${formatError(error)}`);
    }
  }

  #record(file: TraceFile, span: Span): void {
    const { step, operation, lane, start, end } = span;
    const { action, phase, after } = operation;
    const tid = this.#tidOf(file, lane, start, end);
    const moved = lane === 'compute' || lane === 'update' ? operation.bytes : bytesOf(span);
    file.write(
      this.#slice(nameOf(action), lane, tid, span, {
        step,
        operation: operation.id,
        action: action.kind,
        phase,
        ...placeOf(action),
        bytes: moved,
      }),
    );
    if (action.kind !== 'update') this.#extend(span);
    if (lane !== operation.lane) return;
    if (action.kind.startsWith('fetch-')) {
      this.#noteFetch(step, operation.id, { tid, ts: this.#inside(start, end, 0.5) });
    } else if (lane === 'compute') {
      const head = { tid, ts: this.#inside(start, end, 0.01) };
      for (const id of after) this.#arrow(file, step, id, head);
    }
  }

  #extend({ step, start, end }: Span): void {
    const extent = this.#steps.get(step) ?? { start, end };
    extent.start = Math.min(extent.start, start);
    extent.end = Math.max(extent.end, end);
    this.#steps.set(step, extent);
  }

  /** The last piece of a fetch completes it. */
  #noteFetch(step: number, id: OperationId, tail: ArrowStart): void {
    if (step !== this.#fetchStep) this.#fetches.clear();
    this.#fetchStep = step;
    this.#fetches.set(id, tail);
  }

  #arrow(file: TraceFile, step: number, fetch: OperationId, head: ArrowStart): void {
    const tail = step === this.#fetchStep ? this.#fetches.get(fetch) : undefined;
    if (tail === undefined) return;
    this.#arrows += 1;
    const arrow = { name: 'uses', cat: 'fetch', pid: PROCESS, id: this.#arrows };
    file.write({ ph: 's', ...arrow, ...tail });
    file.write({ ph: 'f', bp: 'e', ...arrow, ...head });
  }

  #count(file: TraceFile): void {
    const { heldBytes } = this.#engine!;
    const ts = this.#microseconds(performance.now());
    for (const tier of TIERS) {
      const bytes = heldBytes[tier];
      if (this.#held[tier] === bytes) continue;
      this.#held[tier] = bytes;
      const place = { pid: PROCESS, tid: 0, ts };
      file.write({ ph: 'C', name: `${tier} bytes`, cat: 'tier', ...place, args: { bytes } });
    }
  }

  #tidOf(file: TraceFile, lane: Lane, start: number, end: number): number {
    const track = this.#tracks[lane].place(start, end);
    const tid = (LANES.indexOf(lane) + 1) * TRACKS_PER_LANE + track;
    this.#name(file, tid, track === 0 ? lane : `${lane} ${track + 1}`);
    return tid;
  }

  #name(file: TraceFile, tid: number, name: string): void {
    if (this.#named.has(tid)) return;
    this.#named.add(tid);
    file.write(this.#metadata('thread_name', tid, { name }));
    file.write(this.#metadata('thread_sort_index', tid, { sort_index: tid }));
  }

  #metadata(
    name: 'process_name' | 'thread_name' | 'thread_sort_index',
    tid: number,
    args: { readonly name: string } | { readonly sort_index: number },
  ): TraceEvent {
    return { ph: 'M', name, pid: PROCESS, tid, args };
  }

  #slice(
    name: string,
    cat: string,
    tid: number,
    { start, end }: { readonly start: number; readonly end: number },
    args: SliceArguments,
  ): TraceEvent {
    const ts = this.#microseconds(start);
    // Of rounded times, so that neighbours that touch do not overlap.
    const dur = Math.round((this.#microseconds(end) - ts) * 1000) / 1000;
    return { ph: 'X', name, cat, pid: PROCESS, tid, ts, dur, args };
  }

  /** A time within a slice, at a share of its length. */
  #inside(start: number, end: number, share: number): number {
    return this.#microseconds(start + (end - start) * share);
  }

  /** Milliseconds of `performance.now()` as microseconds of the trace, to the nanosecond. */
  #microseconds(milliseconds: number): number {
    return Math.round((milliseconds - this.#origin) * 1e6) / 1000;
  }
}

function bytesOf({ lane, bytes }: Span): NonNullable<SliceArguments['bytes']> {
  return bytes === 0 ? {} : { [lane]: bytes };
}

/** Where in the model an action works. */
function placeOf(action: Action): Partial<SliceArguments> {
  return {
    ...('block' in action && { block: action.block }),
    ...('microBatch' in action && { micro_batch: action.microBatch }),
    ...('microBatches' in action && { micro_batches: action.microBatches }),
    ...('tile' in action && { tile: action.tile }),
    ...('shard' in action && { shard: action.shard, group: action.group }),
    ...('param' in action && { param: action.param }),
  };
}

function nameOf(action: Action): string {
  if ('shard' in action) return `${action.kind} ${action.shard}`;
  if ('block' in action) return `${action.kind} ${action.block}`;
  if ('tile' in action) return `${action.kind} ${action.tile}`;
  return action.kind;
}

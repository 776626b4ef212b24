/**
 * @file Records the first steps of a run: spans of the executor become slices, arrows, stalls and
 * counters.
 *
 * The measured process has a track of whole steps, and of what a run does between them, a track per
 * lane (trace-process.ts), and one of what compute waited for (stall-tracker.ts). An arrow leads from
 * each fetch to the compute operation that uses it. Counters are the bytes held in each tier, read
 * whenever something ends; the most that the device held since the last reading stands between the
 * two. A second process shows the same steps as the plan predicts them (predicted-steps.ts).
 *
 * A trace that cannot be written, or grows beyond its limit, ends with a warning; the run goes on.
 * Owns the file.
 */
import { formatBytes } from '../../../core/bytes.js';
import { formatError } from '../../../core/errors.js';
import type { Logger } from '../../../core/logger.js';
import type { Engine } from '../../engine/engine.js';
import type { Span } from '../../engine/step-executor.js';
import type { MicroBatch } from '../../model/block.js';
import type { StepCosts } from '../../plan/costs.js';
import type { OperationId, StepPlan } from '../../plan/step-plan.js';
import { HeldCounters, type CountedEngine } from './held-counters.js';
import { nameOf, placeOf, trackOf } from './operation-text.js';
import { predictable, writePredicted, type PlannedStep } from './predicted-steps.js';
import { StallTracker, type Stall } from './stall-tracker.js';
import { PROCESSES, type OperationArguments, type StallArguments } from './trace-event.js';
import { TraceFile } from './trace-file.js';
import type { TracedCosts } from './traced-costs.js';
import { TraceProcess, within, type PlacedSlice } from './trace-process.js';

/** What is to be recorded, and where. */
export interface TraceOptions {
  readonly path: string;
  /** Steps, from the first one on. */
  readonly steps: number;
  readonly logger: Logger;
  /** Bytes of recorded events at most. Default 256 MiB, some million events: what viewers open. */
  readonly maxBytes?: number;
}

/** What is recorded of an engine, and what predicts. */
export type TracedEngine = CountedEngine &
  Pick<Engine, 'budgetBytes' | 'deviceName' | 'stepPlan' | 'stepCosts'>;

/** What a run does between steps. */
export type Interlude = 'evaluation' | 'checkpoint';

const MAX_BYTES = 256 * 2 ** 20;

/** Share of these for evaluations, which may be longer than all steps. */
const EVALUATION_SHARE = 1 / 4;

/** What is open while a trace is recorded. */
interface Recording {
  readonly file: TraceFile;
  readonly engine: TracedEngine;
  readonly costs: TracedCosts;
  /** Begin of the trace, in milliseconds of `performance.now()`. */
  readonly origin: number;
  readonly process: TraceProcess;
}

export class TraceRecorder {
  readonly #options: TraceOptions;
  readonly #stalls = new StallTracker();
  readonly #counters = new HeldCounters();
  /** Fetches of the step under way, by operation: the slice that completed each. */
  readonly #fetches = new Map<OperationId, PlacedSlice>();
  /** Where the steps lie that are not complete. */
  readonly #steps = new Map<number, { start: number; end: number }>();
  /** Batches of the steps to predict. */
  readonly #planned: (readonly MicroBatch[])[] = [];
  #file: TraceFile | undefined;
  #recording: Recording | undefined;
  #firstStep: number | undefined;
  /** Begin of the first step. */
  #begin = Infinity;
  #committed = 0;
  /** The step or evaluation that fetches belong to. */
  #fetchesOf = '';
  #evaluationBytes = 0;
  #arrows = 0;

  /** Opens the file. @throws PATH_UNWRITABLE, OUTPUT_FULL, IO_ERROR */
  constructor(options: TraceOptions) {
    this.#options = options;
    this.#file = new TraceFile(options.path);
  }

  /** Begins the trace of an engine that has taken no step; spans come from now on. */
  begin(engine: TracedEngine, costs: TracedCosts): void {
    const file = this.#file;
    if (file === undefined) return;
    this.#guarded(() => {
      file.begin({
        device: engine.deviceName,
        budget_bytes: engine.budgetBytes,
        default_costs: costs.defaults,
      });
      const process = new TraceProcess(PROCESSES.measured, 'spillway', (event) =>
        file.write(event),
      );
      this.#recording = { file, engine, costs, origin: performance.now(), process };
      engine.takeHighDeviceBytes(); // Of loading.
      this.#count(this.#recording);
    });
  }

  /** A step over these batches is about to begin. */
  step(batches: readonly MicroBatch[]): void {
    if (this.#recording === undefined || this.#planned.length >= this.#options.steps) return;
    this.#planned.push(batches);
  }

  /** Records a span; for `EngineOptions.execution`. */
  readonly onSpan = (span: Span): void => {
    if (this.#recording === undefined) return;
    if (span.isEvaluation === true) {
      this.#whileRecording((recording) => this.#recordEvaluation(recording, span));
      return;
    }
    this.#firstStep ??= span.step;
    if (span.step >= this.#firstStep + this.#options.steps) return;
    this.#whileRecording((recording) => {
      for (const stall of this.#stalls.note(span)) this.#stall(recording, stall);
      if (span.operation.action.kind !== 'update') this.#extend(span);
      this.#record(recording, span);
      this.#count(recording);
    });
  };

  /** What a run did after `step`, since `start`; milliseconds of `performance.now()`. */
  interlude(name: Interlude, step: number, start: number): void {
    this.#whileRecording(({ process }) => {
      const end = performance.now();
      this.#stalls.skipTo(end);
      const times = this.#times({ start, end });
      process.other('step', { name, cat: 'interlude', ...times, args: { step } });
    });
  }

  /** A step and its update are complete. After the last step to record the file is, too. */
  committed(step: number): void {
    this.#whileRecording((recording) => {
      const extent = this.#steps.get(step);
      if (extent === undefined) return;
      this.#steps.delete(step);
      this.#committed += 1;
      const { process, file } = recording;
      const facts = { name: `step ${step}`, cat: 'step', args: { step } };
      process.other('step', { ...facts, ...this.#times(extent) });
      if (this.#committed >= this.#options.steps) this.#end(recording);
      else file.flush();
    });
  }

  /** Completes the file, if it is not. Idempotent. */
  close(): void {
    this.#whileRecording((recording) => this.#end(recording));
    this.#file?.abandon();
    this.#file = undefined;
  }

  #end(recording: Recording): void {
    this.#recording = undefined;
    this.#file = undefined;
    const { file } = recording;
    const steps = this.#predictable(recording);
    if (steps.length > 0) {
      const name = 'spillway, predicted';
      const process = new TraceProcess(PROCESSES.predicted, name, (event) => file.write(event));
      writePredicted(steps, this.#firstStep ?? 1, this.#begin, process);
    }
    file.end();
  }

  /** The complete steps, as far as they are predicted. */
  #predictable({ engine, costs: { machine } }: Recording): PlannedStep[] {
    const costs = new Map<StepPlan, StepCosts>();
    const complete = this.#planned.slice(0, this.#committed);
    return predictable(
      complete.map((batches) => ({ batches, plan: engine.stepPlan(batches) })),
    ).map(({ batches, plan }) => {
      const own = costs.get(plan) ?? engine.stepCosts(batches, machine);
      costs.set(plan, own);
      return { plan, costs: own };
    });
  }

  #whileRecording(write: (recording: Recording) => void): void {
    const recording = this.#recording;
    if (recording === undefined) return;
    this.#guarded(() => {
      write(recording);
      const { maxBytes = MAX_BYTES, path, logger } = this.#options;
      if (this.#recording === undefined || recording.file.byteLength < maxBytes) return;
      const size = formatBytes(maxBytes);
      logger.warn(`the trace ${path} ends early, at ${size}; record fewer steps by trace_steps`);
      this.#end(recording);
    });
  }

  /** A file that cannot be written is left; the run goes on. */
  #guarded(write: () => void): void {
    const file = this.#file;
    try {
      write();
    } catch (error) {
      this.#recording = undefined;
      this.#file = undefined;
      file?.abandon();
      const { logger, path } = this.#options;
      logger.warn(`the trace ${path} ends early; the run goes on: ${formatError(error)}`);
    }
  }

  #record(recording: Recording, span: Span): void {
    const { step, operation, lane, isEvaluation } = span;
    const { action, phase, after } = operation;
    const moved = lane === 'compute' || lane === 'update' ? operation.bytes : bytesOf(span);
    const args: OperationArguments = {
      step,
      ...(isEvaluation === true && { evaluation: true }),
      operation: operation.id,
      action: action.kind,
      phase,
      ...placeOf(action),
      bytes: moved,
    };
    const facts = { name: nameOf(action), ...this.#times(span), args };
    const slice = recording.process.operation(trackOf(operation, lane), facts);
    if (lane !== operation.lane) return;
    if (action.kind.startsWith('fetch-')) {
      this.#noteFetch(span, slice);
    } else if (lane === 'compute') {
      for (const id of after) this.#arrow(recording, span, id, slice);
    }
  }

  /** Of evaluations as much as leaves room for steps. */
  #recordEvaluation(recording: Recording, span: Span): void {
    const { file } = recording;
    const before = file.byteLength;
    const most = (this.#options.maxBytes ?? MAX_BYTES) * EVALUATION_SHARE;
    if (this.#evaluationBytes >= most) return;
    this.#record(recording, span);
    this.#count(recording);
    this.#evaluationBytes += file.byteLength - before;
  }

  #stall({ process }: Recording, stall: Stall): void {
    const { cause, step } = stall;
    const times = this.#times(stall);
    if (typeof cause === 'string') {
      const name = cause === 'launch' ? 'host' : 'between steps';
      process.other('stalls', { name, cat: 'stall', ...times, args: { step } });
      return;
    }
    const { lane, operation } = cause;
    const name = `waits for ${lane}: ${nameOf(operation.action)}`;
    const args: StallArguments = {
      step,
      lane,
      for_step: cause.step,
      for_operation: operation.id,
    };
    process.other('stalls', { name, cat: 'stall', ...times, args });
  }

  #extend({ step, start, end }: Span): void {
    const extent = this.#steps.get(step) ?? { start, end };
    extent.start = Math.min(extent.start, start);
    extent.end = Math.max(extent.end, end);
    this.#steps.set(step, extent);
    this.#begin = Math.min(this.#begin, this.#times(extent).start);
  }

  /** The last piece of a fetch completes it. */
  #noteFetch(span: Span, tail: PlacedSlice): void {
    const of = ownerOf(span);
    if (of !== this.#fetchesOf) this.#fetches.clear();
    this.#fetchesOf = of;
    this.#fetches.set(span.operation.id, tail);
  }

  #arrow({ file }: Recording, span: Span, fetch: OperationId, head: PlacedSlice): void {
    const tail = ownerOf(span) === this.#fetchesOf ? this.#fetches.get(fetch) : undefined;
    if (tail === undefined) return;
    this.#arrows += 1;
    const arrow = { name: 'uses', cat: 'fetch', pid: PROCESSES.measured, id: this.#arrows };
    file.write({ ph: 's', ...arrow, tid: tail.tid, ts: within(tail, 0.5) });
    file.write({ ph: 'f', bp: 'e', ...arrow, tid: head.tid, ts: within(head, 0.01) });
  }

  #count({ file, engine, origin }: Recording): void {
    const time = (performance.now() - origin) * 1000;
    this.#counters.read(engine, time, (event) => file.write(event));
  }

  /** As microseconds of the trace. */
  #times({ start, end }: Pick<Span, 'start' | 'end'>): { start: number; end: number } {
    const origin = this.#recording?.origin ?? 0;
    return { start: (start - origin) * 1000, end: (end - origin) * 1000 };
  }
}

function ownerOf({ step, isEvaluation }: Span): string {
  return `${isEvaluation === true ? 'evaluation after' : 'step'} ${step}`;
}

function bytesOf({ lane, bytes }: Span): NonNullable<OperationArguments['bytes']> {
  return bytes === 0 ? {} : { [lane]: bytes };
}

/**
 * @file What compute waited for: for each time in which it stood still, the operation that kept it.
 *
 * An operation starts when all that it waits for is over; what was over last kept it. Where that one
 * had itself waited, what it waited for is to blame for that part, and so on back: the critical path
 * through the time that compute stood still. The rest is the host's: kernels that are launched, and
 * whatever a caller does between two steps.
 *
 * Spans come when they end, so that whatever a span waited for has come before it; but a kernel's end
 * is told late where the event loop is busy, and then that of a later one comes first and is held
 * back. Memory holds the operations of three steps.
 */
import type { Lane } from '../../../core/types.js';
import type { Span } from '../../engine/step-executor.js';
import type { Operation, OperationId } from '../../plan/step-plan.js';
import { trackOf } from './operation-text.js';
import type { Track } from './trace-event.js';

/** A time in which compute stood still; milliseconds of `performance.now()`. */
export interface Stall {
  /** The step whose compute stood still. */
  readonly step: number;
  readonly start: number;
  readonly end: number;
  /** What it waited for: `launch` and `between` are the host's work within and between steps. */
  readonly cause: Culprit | 'launch' | 'between';
}

/** An operation that compute waited for. */
export interface Culprit {
  readonly step: number;
  readonly operation: Operation;
  /** Where it was busy longest of that time. */
  readonly lane: Track;
}

interface Piece {
  readonly lane: Lane;
  readonly start: number;
  readonly end: number;
}

/** An operation as far as it ran. */
interface Run {
  readonly step: number;
  readonly operation: Operation;
  /** When it could start, and what was over then; undefined for what waits for nothing. */
  readonly after: Arrival | undefined;
  readonly pieces: Piece[];
  end: number;
  /** When it had read the device. */
  copied: number;
}

/** Something was over. */
interface Arrival {
  readonly run: Run;
  readonly at: number;
}

interface Step {
  readonly number: number;
  readonly runs: Map<OperationId, Run>;
  /** The last update of each group. */
  readonly updates: Map<number, Run>;
  /** What ended last but for updates, and of the updates. */
  finished: Run | undefined;
  updated: Run | undefined;
  start: number;
}

/** Shorter times are those between two readings of the clock. */
const LEAST_MS = 0.001;

export class StallTracker {
  /** The last steps, newest first. */
  #steps: Step[] = [];
  /** Until when compute is accounted for. */
  #until: number | undefined;
  /** Compute that ended before something it waited for was told of. */
  #early: Span[] = [];

  /** Notes a span. @returns the stalls before it, where it is compute's; they tile that time */
  note(span: Span): Stall[] {
    if (this.#isEarly(span)) {
      this.#early.push(span);
      return [];
    }
    const stalls = this.#note(span);
    if (this.#early.length === 0) return stalls;
    // Of another step they never come.
    const held = this.#early.filter(({ step }) => step === span.step);
    this.#early = [];
    return [...stalls, ...held.flatMap((one) => this.note(one))];
  }

  #isEarly({ lane, step: number, operation }: Span): boolean {
    if (lane !== 'compute') return false;
    const step = this.#steps.find((one) => one.number === number);
    return operation.after.some((id) => step?.runs.has(id) !== true);
  }

  #note(span: Span): Stall[] {
    const step = this.#stepOf(span);
    const { operation, lane, start, end } = span;
    let run = step.runs.get(operation.id);
    if (run === undefined) {
      const after = this.#lastOf(step, operation);
      const { number } = step;
      run = { step: number, operation, after, pieces: [], end, copied: end };
      step.runs.set(operation.id, run);
    }
    run.pieces.push({ lane, start, end });
    run.end = Math.max(run.end, end);
    if (lane === 'download') run.copied = Math.max(run.copied, end);
    const { action } = operation;
    if (action.kind === 'update') {
      step.updates.set(action.group, run);
      step.updated = run;
    } else {
      step.finished = run;
    }
    return lane === 'compute' ? this.#stallsBefore(run, step, span) : [];
  }

  /** What follows until `time` is no step's. */
  skipTo(time: number): void {
    this.#until = Math.max(this.#until ?? time, time);
  }

  #stepOf({ step: number, start }: Span): Step {
    let step = this.#steps.find((one) => one.number === number);
    if (step === undefined) {
      const nothing = { finished: undefined, updated: undefined };
      step = { number, runs: new Map(), updates: new Map(), ...nothing, start };
      // Updates of the step before wait for nothing older than that step.
      this.#steps = [step, ...this.#steps].slice(0, 3);
    }
    step.start = Math.min(step.start, start);
    return step;
  }

  /** What was over last of all that an operation waits for. */
  #lastOf(step: Step, { after, copied = [], fences = [] }: Operation): Arrival | undefined {
    const previous = this.#steps.find(({ number }) => number === step.number - 1);
    const arrivals: (Arrival | undefined)[] = [
      ...after.map((id) => arrival(step.runs.get(id), 'end')),
      ...copied.map((id) => arrival(step.runs.get(id), 'copied')),
      ...fences.map((group) => arrival(previous?.updates.get(group), 'end')),
    ];
    return latest(arrivals);
  }

  #stallsBefore(run: Run, step: Step, { start, end }: Span): Stall[] {
    const from = this.#until ?? step.start;
    this.#until = Math.max(from, end);
    const stalls: Stall[] = [];
    let at = from;
    for (const { until, cause } of this.#blame(run, start, from)) {
      if (until - at < LEAST_MS) continue;
      const whole = { start: at, end: until };
      stalls.push({
        step: run.step,
        ...whole,
        cause: typeof cause === 'string' ? cause : culprit(cause, whole),
      });
      at = until;
    }
    return stalls;
  }

  /** Who is to blame for the time from `from` to the start of `run`, in order. */
  #blame(run: Run, start: number, from: number): Blame[] {
    const chain: Blame[] = [{ until: start, cause: 'launch' }];
    const blame = (until: number, cause: Blame['cause']): void => {
      chain.push({ until: Math.min(until, chain.at(-1)!.until), cause });
    };
    let waiting = run;
    for (;;) {
      let kept = waiting.after;
      if (kept === undefined) {
        const step = this.#steps.find(({ number }) => number === waiting.step);
        if (step === undefined || step.start <= from) break;
        blame(step.start, 'between');
        kept = this.#overBefore(step);
      }
      if (kept === undefined || kept.at <= from) break;
      blame(kept.at, kept.run);
      waiting = kept.run;
    }
    return chain.reverse();
  }

  /** A step begins when the one before has finished and the update before that is over. */
  #overBefore({ number }: Step): Arrival | undefined {
    const [previous, older] = [1, 2].map((ago) =>
      this.#steps.find((one) => one.number === number - ago),
    );
    return latest([arrival(previous?.finished, 'end'), arrival(older?.updated, 'end')]);
  }
}

/** From the one before on until then. */
interface Blame {
  readonly until: number;
  readonly cause: Run | 'launch' | 'between';
}

function arrival(run: Run | undefined, when: 'end' | 'copied'): Arrival | undefined {
  return run === undefined ? undefined : { run, at: run[when] };
}

function latest(arrivals: readonly (Arrival | undefined)[]): Arrival | undefined {
  return arrivals.reduce<Arrival | undefined>(
    (last, one) => (one !== undefined && one.at > (last?.at ?? -Infinity) ? one : last),
    undefined,
  );
}

function culprit(
  { step, operation, pieces }: Run,
  time: { readonly start: number; readonly end: number },
): Culprit {
  const busy = new Map<Lane, number>();
  for (const { lane, start, end } of pieces) {
    const common = Math.min(end, time.end) - Math.max(start, time.start);
    if (common > 0) busy.set(lane, (busy.get(lane) ?? 0) + common);
  }
  let [lane, most] = [operation.lane, 0];
  for (const [one, ms] of busy) if (ms > most) [lane, most] = [one, ms];
  return { step, operation, lane: trackOf(operation, lane) };
}

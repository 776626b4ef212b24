/**
 * @file Runs step plans: every operation starts as soon as what it waits for is over.
 *
 * Compute operations are launched in program order, at most as far ahead of the device as the plan
 * says, so that its queue never runs dry and memory is allocated in the planned order. Transfers take
 * turns on their links (link-turns.ts). Updates of a step may still run when the next step begins; its
 * operations wait for them group by group (`fences`).
 *
 * When an operation fails, those under way end and no other starts; the first error is reported.
 *
 * Owns no memory.
 */
import { SpillwayError, assert } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import type { Lane as LaneName, Link } from '../../core/types.js';
import type { Device } from '../../tiers/device/device.js';
import {
  LAUNCH_AHEAD,
  type Compute,
  type Operation,
  type OperationId,
  type StepPlan,
  type Transfer,
} from '../plan/step-plan.js';
import type { ComputeRunner } from './compute-runner.js';
import { Lane } from './lane.js';
import { LinkTurns, type Throttles } from './link-turns.js';
import { sleepUntil } from './sleep-until.js';
import type { StepContext, StepTransfers } from './step-transfers.js';

/** Work of the host between backward and the next forward. */
export interface UpdateHooks {
  /** All gradients are at home: checks them and settles the clip factor. @throws NON_FINITE */
  norm(): void;
  /** Updates one shard. @param onStart called when a worker takes it up */
  update(shard: number, group: number, onStart: () => void): Promise<void>;
}

/** One operation, or a piece of one on a link, as it ran; milliseconds of `performance.now()`. */
export interface Span {
  /** One-based number of the optimizer step; of an evaluation, the one before it. */
  readonly step: number;
  /** Whether it belongs to an evaluation. */
  readonly isEvaluation?: boolean;
  readonly operation: Operation;
  readonly lane: LaneName;
  readonly start: number;
  readonly end: number;
  /** When what an update waited for was over; a worker may have taken it up later. */
  readonly readyAt?: number;
  /** On the lane, where that is a link; what an update or a kernel moves stands in its operation. */
  readonly bytes: number;
}

/** What the main thread did for an operation beside its spans. */
export interface HostWork {
  /** One-based number of the optimizer step. */
  readonly step: number;
  readonly operation: Operation;
  /** Milliseconds: until a compute operation's kernels were launched, or between the pieces of a
   * transfer. */
  readonly ms: number;
}

export interface ExecutorOptions {
  readonly throttles?: Throttles;
  /** Seconds that a compute operation or an update takes at least (a paced device, for tests). */
  readonly pace?: (operation: Operation) => number;
  readonly onSpan?: (span: Span) => void;
  readonly onHostWork?: (work: HostWork) => void;
  readonly logger?: Logger;
  /** Without progress for so long the oldest operation is named in a warning. Default 60 s. */
  readonly watchdogMs?: number;
}

/** What an executor drives; its caller owns all of it. */
export interface ExecutorParts {
  readonly device: Pick<Device, 'computed'>;
  readonly compute: Pick<ComputeRunner, 'begin' | 'run' | 'clear'>;
  readonly transfers: Pick<StepTransfers, 'run'>;
}

const WATCHDOG_MS = 60_000;

/** What a span belongs to. */
type SpanMark = Pick<Span, 'step' | 'isEvaluation'>;

function markOf({ step, isEvaluation }: StepContext): SpanMark {
  return isEvaluation === true ? { step, isEvaluation } : { step };
}

/** Of plans that update nothing. */
const NO_UPDATES: UpdateHooks = {
  norm: () => assert(false, 'an evaluation has no gradients'),
  update: () => Promise.reject(new SpillwayError('INTERNAL', 'an evaluation updates nothing')),
};

/** A step that was started. */
export interface StartedStep {
  /** Everything but the updates is over. */
  readonly finished: Promise<void>;
  /** The updates too. */
  readonly updated: Promise<void>;
}

export class StepExecutor {
  readonly #device: ExecutorParts['device'];
  readonly #compute: ExecutorParts['compute'];
  readonly #transfers: ExecutorParts['transfers'];
  readonly #options: ExecutorOptions;
  readonly #links: LinkTurns;
  /** The last update of each group. */
  readonly #fences = new Map<number, Promise<unknown>>();
  readonly #running = new Map<Operation, number>();
  #operations: readonly Operation[] = [];
  #mark: SpanMark = { step: 0 };
  #computeFreeAt = 0;
  #updateFreeAt = 0;
  /** Updates that are held back: the next one is ready when one is over. */
  readonly #updates = new Lane(2);
  /** When the last compute operation that is over had run. */
  #computedAt = 0;
  #progress = 0;

  constructor(
    device: ExecutorParts['device'],
    compute: ExecutorParts['compute'],
    transfers: ExecutorParts['transfers'],
    options: ExecutorOptions = {},
  ) {
    this.#device = device;
    this.#compute = compute;
    this.#transfers = transfers;
    this.#options = options;
    this.#links = new LinkTurns(options.throttles, (id, link, bytes, start, end) =>
      this.#onPiece(id, link, bytes, start, end),
    );
  }

  /**
   * Starts a step or an evaluation; the one before has finished, its updates perhaps not.
   *
   * @param hooks needed by plans that update
   */
  start(plan: StepPlan, step: StepContext, hooks: UpdateHooks = NO_UPDATES): StartedStep {
    this.#operations = plan.operations;
    this.#mark = markOf(step);
    this.#compute.begin(step.aux, step.place);
    const run = new StepRun(plan, (operation, signals) =>
      this.#perform(operation, step, hooks, signals),
    );
    for (const operation of plan.operations) {
      const fences = (operation.fences ?? []).map((group) => this.#fences.get(group));
      run.add(operation, fences);
    }
    const finished = run.settled(({ action }) => action.kind !== 'update');
    this.#fenceGroups(plan, run);
    const updated = run.settled(() => true);
    updated.catch(() => undefined); // Whoever commits the step reports it; `finished` may fail first.
    const watched = this.#watch(updated);
    watched.catch(() => undefined);
    return {
      finished: finished.finally(() => {
        this.#compute.clear();
      }),
      updated,
    };
  }

  #fenceGroups(plan: StepPlan, run: StepRun): void {
    const groups = new Map<number, Promise<void>[]>();
    for (const { id, action } of plan.operations) {
      if (action.kind !== 'update') continue;
      groups.set(action.group, [...(groups.get(action.group) ?? []), run.done(id)]);
    }
    for (const [group, updates] of groups) {
      // Every worker is done before the fence falls, so that none writes behind a reader's back.
      const fence = Promise.allSettled(updates).then((results) => {
        const failed = results.find((result) => result.status === 'rejected');
        if (failed !== undefined) throw failed.reason;
      });
      fence.catch(() => undefined); // Whoever waits at the fence sees it.
      this.#fences.set(group, fence);
    }
  }

  async #perform(
    operation: Operation,
    step: StepContext,
    hooks: UpdateHooks,
    signals: Signals,
  ): Promise<void> {
    const start = performance.now();
    this.#running.set(operation, start);
    this.#progress += 1;
    try {
      await this.#act(operation, step, hooks, signals);
    } finally {
      this.#running.delete(operation);
      this.#progress += 1;
    }
  }

  async #act(
    operation: Operation,
    step: StepContext,
    hooks: UpdateHooks,
    signals: Signals,
  ): Promise<void> {
    const { action, lane } = operation;
    if (lane === 'compute') return this.#launch(operation, action as Compute, step, signals);
    const start = performance.now();
    if (action.kind === 'norm') {
      hooks.norm();
      this.#span(operation, step, start);
    } else if (action.kind === 'update') {
      await this.#update(operation, action, step, hooks);
    } else {
      let copied = 0;
      let pieces = 0;
      const turns = this.#links.of(operation.id, (link, bytes) => {
        pieces += 1;
        if (link !== 'download') return;
        copied += bytes;
        if (copied === operation.bytes.download) signals.copied();
      });
      await this.#transfers.run(action as Transfer, step, turns);
      // Pieces tell their spans themselves; work within host memory has none.
      if (pieces === 0) this.#span(operation, step, start);
      else this.#hostWork(operation, step, turns.hostMs());
    }
  }

  /** Paced updates take their time one after the other; throttled ones share the NVMe links. */
  async #update(
    operation: Operation,
    { shard, group }: Extract<Operation['action'], { kind: 'update' }>,
    step: StepContext,
    hooks: UpdateHooks,
  ): Promise<void> {
    const { pace, throttles } = this.#options;
    const readyAt = performance.now();
    const isHeldBack = pace !== undefined || Object.keys(throttles ?? {}).length > 0;
    if (isHeldBack) await this.#updates.enter(operation.id);
    try {
      let start = performance.now();
      const paced = pace === undefined ? 0 : pace(operation) * 1000;
      const end = (this.#updateFreeAt = Math.max(start, this.#updateFreeAt) + paced);
      await Promise.all([
        hooks.update(shard, group, () => (start = performance.now())),
        this.#links.occupy(operation.id, 'nvme_read', operation.bytes.nvme_read ?? 0),
        this.#links.occupy(operation.id, 'nvme_write', operation.bytes.nvme_write ?? 0),
      ]);
      await sleepUntil(paced > 0 ? end : 0);
      this.#span(operation, step, Math.max(start, paced > 0 ? end - paced : 0), { readyAt });
    } finally {
      if (isHeldBack) this.#updates.leave();
    }
  }

  async #launch(
    operation: Operation,
    action: Compute,
    step: StepContext,
    signals: Signals,
  ): Promise<void> {
    const { pace } = this.#options;
    const begun = performance.now();
    await this.#compute.run(operation, action);
    const launched = performance.now();
    this.#hostWork(operation, step, launched - begun);
    const start = Math.max(launched, this.#computeFreeAt);
    const planned = pace === undefined ? 0 : pace(operation) * 1000;
    this.#computeFreeAt = start + planned;
    signals.launched();
    await this.#device.computed();
    await sleepUntil(start + planned);
    this.#computeFreeAt = Math.max(this.#computeFreeAt, performance.now());
    // It was launched ahead, and ran when the one before had.
    this.#span(operation, step, Math.max(start, this.#computedAt));
    this.#computedAt = performance.now();
  }

  #span(
    operation: Operation,
    step: StepContext,
    start: number,
    more: Pick<Span, 'readyAt'> = {},
  ): void {
    const { lane } = operation;
    const end = performance.now();
    this.#options.onSpan?.({ ...markOf(step), operation, lane, start, end, bytes: 0, ...more });
  }

  #hostWork(operation: Operation, { step }: StepContext, ms: number): void {
    this.#options.onHostWork?.({ step, operation, ms });
  }

  #onPiece(id: OperationId, link: Link, bytes: number, start: number, end: number): void {
    this.#progress += 1;
    const operation = this.#operations[id];
    if (operation !== undefined) {
      this.#options.onSpan?.({ ...this.#mark, operation, lane: link, start, end, bytes });
    }
  }

  /** Names the oldest operation when nothing has moved for a while. */
  async #watch(until: Promise<void>): Promise<void> {
    const { logger, watchdogMs = WATCHDOG_MS } = this.#options;
    if (logger === undefined) return;
    let seen = this.#progress;
    const timer = setInterval(() => {
      const oldest = this.#running.entries().next().value;
      if (seen === this.#progress && oldest !== undefined) {
        const [operation, start] = oldest;
        const seconds = Math.round((performance.now() - start) / 1000);
        logger.warn(
          `nothing has moved for ${watchdogMs / 1000} s; the oldest operation is ${describe(operation)}, for ${seconds} s`,
        );
      }
      seen = this.#progress;
    }, watchdogMs);
    timer.unref();
    await until.catch(() => undefined);
    clearInterval(timer);
  }
}

/** One line about an operation. */
export function describe({ id, action }: Operation): string {
  const facts = Object.entries(action)
    .filter(([name, value]) => name !== 'kind' && typeof value !== 'object')
    .map(([name, value]) => `${name} ${String(value)}`);
  return `${action.kind} (operation ${id}${facts.map((fact) => `, ${fact}`).join('')})`;
}

/** What an operation reports before it is over. */
interface Signals {
  /** Its kernels are launched. */
  launched(): void;
  /** It has read the device. */
  copied(): void;
}

interface Running {
  readonly done: Promise<void>;
  readonly launched: Promise<void>;
  readonly copied: Promise<void>;
}

/** The promises of one step. */
class StepRun {
  readonly #perform: (operation: Operation, signals: Signals) => Promise<void>;
  readonly #plan: StepPlan;
  readonly #running: Running[] = [];
  readonly #computes: Running[] = [];
  #failure: { readonly error: unknown } | undefined;

  constructor(plan: StepPlan, perform: (operation: Operation, signals: Signals) => Promise<void>) {
    this.#plan = plan;
    this.#perform = perform;
  }

  done(id: OperationId): Promise<void> {
    return this.#running[id]!.done;
  }

  /** Lets an operation start when what it waits for is over. */
  add(operation: Operation, fences: readonly (Promise<unknown> | undefined)[]): void {
    const waits: Promise<unknown>[] = [
      ...operation.after.map((id) => this.#running[id]!.done),
      ...(operation.copied ?? []).map((id) => this.#running[id]!.copied),
      ...fences.filter((fence) => fence !== undefined),
    ];
    const isCompute = operation.lane === 'compute';
    if (isCompute) {
      const { launchAhead = LAUNCH_AHEAD } = this.#plan;
      const [before, earlier] = [this.#computes.at(-1), this.#computes.at(-launchAhead)];
      if (before !== undefined) waits.push(before.launched);
      if (earlier !== undefined) waits.push(earlier.done);
    }
    const launched = signal();
    const copied = signal();
    const done = (async () => {
      try {
        await Promise.all(waits);
        if (this.#failure !== undefined) throw this.#failure.error;
        await this.#perform(operation, { launched: launched.raise, copied: copied.raise });
        launched.raise();
        copied.raise();
      } catch (error) {
        this.#failure ??= { error };
        launched.fail(error);
        copied.fail(error);
        throw error;
      }
    })();
    done.catch(() => undefined); // Reported by `settled`.
    const running = { done, launched: launched.promise, copied: copied.promise };
    this.#running.push(running);
    if (isCompute) this.#computes.push(running);
  }

  /** Waits until all those operations are over. @throws the step's first failure */
  async settled(wanted: (operation: Operation) => boolean): Promise<void> {
    const some = this.#running.filter((_, id) => wanted(this.#plan.operations[id]!));
    await Promise.allSettled(some.map(({ done }) => done));
    if (this.#failure !== undefined) throw this.#failure.error;
  }
}

function signal(): { promise: Promise<void>; raise: () => void; fail: (error: unknown) => void } {
  let raise: () => void = () => undefined;
  let fail: (error: unknown) => void = () => undefined;
  const promise = new Promise<void>((resolve, reject) => {
    raise = resolve;
    fail = reject;
  });
  promise.catch(() => undefined); // Whoever waits sees it.
  return { promise, raise, fail };
}

/**
 * @file One step under simulation: what each operation still waits for, and when it ran.
 */
import type { Lane } from '../../core/types.js';
import type { EventQueue } from './event-queue.js';
import { LAUNCH_AHEAD, type Operation, type OperationId, type StepPlan } from './step-plan.js';
import type { SimulatedStep } from './timeline.js';

/** Numbers by operation, one after the other: those of `id` from `starts[id]` up to
 * `starts[id + 1]`. */
interface Lists {
  readonly starts: Int32Array;
  readonly items: Int32Array;
}

/** What depends on what, once per plan. Operations are many, so these are flat arrays. */
export interface Graph {
  readonly dependents: Lists;
  readonly copyDependents: Lists;
  /** For how many things each operation waits. */
  readonly waits: Int32Array;
  readonly computes: readonly OperationId[];
  /** Place of a compute operation among these; -1 of others. */
  readonly computeIndex: Int32Array;
  readonly updateCounts: ReadonlyMap<number, number>;
  /** Operations that are no updates. */
  readonly stepCount: number;
}

const NONE: readonly OperationId[] = [];

export function graphOf({ operations, launchAhead = LAUNCH_AHEAD }: StepPlan): Graph {
  const computes: OperationId[] = [];
  const computeIndex = new Int32Array(operations.length).fill(-1);
  const waits = new Int32Array(operations.length);
  const updateCounts = new Map<number, number>();
  let stepCount = 0;
  for (const { id, lane, action, after, copied } of operations) {
    let count = after.length + (copied?.length ?? 0);
    if (lane === 'compute') {
      const index = computes.push(id) - 1;
      computeIndex[id] = index;
      // The launch of the operation before, and the end of an earlier one.
      count += Number(index > 0) + Number(index >= launchAhead);
    }
    waits[id] = count;
    if (action.kind !== 'update') stepCount += 1;
    else updateCounts.set(action.group, (updateCounts.get(action.group) ?? 0) + 1);
  }
  return {
    dependents: reversed(operations, ({ after }) => after),
    copyDependents: reversed(operations, ({ copied = NONE }) => copied),
    waits,
    computes,
    computeIndex,
    updateCounts,
    stepCount,
  };
}

/** Of each operation, those that name it, ascending. */
function reversed(
  operations: readonly Operation[],
  namedBy: (operation: Operation) => readonly OperationId[],
): Lists {
  const starts = new Int32Array(operations.length + 1);
  for (const operation of operations)
    for (const other of namedBy(operation)) starts[other + 1]! += 1;
  for (let id = 0; id < operations.length; id += 1) starts[id + 1]! += starts[id]!;
  const items = new Int32Array(starts[operations.length]!);
  const next = starts.slice();
  for (const operation of operations) {
    for (const other of namedBy(operation)) {
      items[next[other]!] = operation.id;
      next[other]! += 1;
    }
  }
  return { starts, items };
}

/** A group whose update is not over. */
export interface Fence {
  open: number;
  readonly waiters: (() => void)[];
}

/** One update of the group is over. */
export function lower(fence: Fence): void {
  fence.open -= 1;
  if (fence.open === 0) for (const waiter of fence.waiters.splice(0)) waiter();
}

/** The operations of one step that are not over. */
export class RunningStep {
  /** Of its own updates, by group. */
  readonly fences = new Map<number, Fence>();
  readonly #plan: StepPlan;
  readonly #graph: Graph;
  readonly #clock: EventQueue;
  readonly #begin: (operation: Operation) => void;
  readonly #waits: Int32Array;
  readonly #isStarted: Uint8Array;
  readonly #isCopied: Uint8Array;
  readonly #starts: Float64Array;
  readonly #ends: Float64Array;
  readonly #busy: Record<Lane, number> = {
    compute: 0,
    upload: 0,
    download: 0,
    nvme_read: 0,
    nvme_write: 0,
    update: 0,
  };
  readonly #start: number;
  readonly #onFinished: (() => void)[] = [];
  readonly #onUpdated: (() => void)[] = [];
  #unfinished: number;
  #open: number;
  #finished = 0;
  #updated = 0;

  constructor(
    plan: StepPlan,
    graph: Graph,
    clock: EventQueue,
    begin: (operation: Operation) => void,
  ) {
    this.#plan = plan;
    this.#graph = graph;
    this.#clock = clock;
    this.#begin = begin;
    this.#start = clock.now;
    const { operations } = plan;
    const count = operations.length;
    this.#waits = graph.waits.slice();
    this.#isStarted = new Uint8Array(count);
    this.#isCopied = new Uint8Array(count);
    this.#starts = new Float64Array(count);
    this.#ends = new Float64Array(count);
    this.#open = count;
    this.#unfinished = graph.stepCount;
  }

  get result(): SimulatedStep {
    return {
      plan: this.#plan,
      start: this.#start,
      finished: this.#finished,
      updated: this.#updated,
      starts: this.#starts,
      ends: this.#ends,
      busySeconds: this.#busy,
    };
  }

  /** Begins what waits for nothing. */
  open(): void {
    for (const operation of this.#plan.operations) {
      if (this.#waits[operation.id] === 0) this.#launch(operation);
    }
    this.#conclude();
  }

  /** Makes operation `id` wait for one more `arrive`. */
  wait(id: OperationId): void {
    this.#waits[id]! += 1;
  }

  arrive(id: OperationId): void {
    this.#waits[id]! -= 1;
    if (this.#waits[id] === 0) this.#launch(this.#plan.operations[id]!);
  }

  started(id: OperationId, time: number): void {
    this.#starts[id] = time;
    this.#isStarted[id] = 1;
  }

  launched(id: OperationId, start: number): void {
    this.started(id, start);
    this.#arriveAtCompute(id, 1);
  }

  copied(id: OperationId): void {
    if (this.#isCopied[id] === 1) return;
    this.#isCopied[id] = 1;
    this.#arriveAll(this.#graph.copyDependents, id);
  }

  done(id: OperationId): void {
    const { now } = this.#clock;
    if (this.#isStarted[id] === 0) this.started(id, now);
    this.#ends[id] = now;
    this.#open -= 1;
    const operation = this.#plan.operations[id]!;
    if (operation.action.kind !== 'update') this.#unfinished -= 1;
    this.copied(id);
    if (operation.lane === 'compute') this.#arriveAtCompute(id, this.#launchAhead);
    this.#arriveAll(this.#graph.dependents, id);
    this.#conclude();
  }

  addBusy(lane: Lane, seconds: number): void {
    this.#busy[lane] += seconds;
  }

  whenFinished(run: () => void): void {
    this.#onFinished.push(run);
  }

  whenUpdated(run: () => void): void {
    if (this.#open <= 0) run();
    else this.#onUpdated.push(run);
  }

  get #launchAhead(): number {
    return this.#plan.launchAhead ?? LAUNCH_AHEAD;
  }

  /** The compute operation `distance` after `id` has one thing less to wait for. */
  #arriveAtCompute(id: OperationId, distance: number): void {
    const next = this.#graph.computes[this.#graph.computeIndex[id]! + distance];
    if (next !== undefined) this.arrive(next);
  }

  #arriveAll({ starts, items }: Lists, id: OperationId): void {
    const end = starts[id + 1]!;
    for (let at = starts[id]!; at < end; at += 1) this.arrive(items[at]!);
  }

  #launch(operation: Operation): void {
    this.#waits[operation.id] = -1; // Once.
    this.#begin(operation);
  }

  #conclude(): void {
    const { now } = this.#clock;
    if (this.#unfinished === 0) {
      this.#unfinished = -1;
      this.#finished = now;
      for (const run of this.#onFinished.splice(0)) run();
    }
    if (this.#open === 0) {
      this.#open = -1;
      this.#updated = now;
      for (const run of this.#onUpdated.splice(0)) run();
    }
  }
}

/**
 * @file One step under simulation: what each operation still waits for, and when it ran.
 */
import type { Lane } from '../../core/types.js';
import type { EventQueue } from './event-queue.js';
import type { Operation, OperationId, StepPlan } from './step-plan.js';
import type { SimulatedStep } from './timeline.js';

/** What depends on what, once per plan. */
export interface Graph {
  readonly dependents: readonly (readonly OperationId[])[];
  readonly copyDependents: readonly (readonly OperationId[])[];
  readonly computes: readonly OperationId[];
  /** Place of a compute operation among these. */
  readonly computeIndex: ReadonlyMap<OperationId, number>;
  readonly updateCounts: ReadonlyMap<number, number>;
}

export function graphOf({ operations }: StepPlan): Graph {
  const dependents: OperationId[][] = operations.map(() => []);
  const copyDependents: OperationId[][] = operations.map(() => []);
  const computes: OperationId[] = [];
  const computeIndex = new Map<OperationId, number>();
  const updateCounts = new Map<number, number>();
  for (const { id, lane, action, after, copied = [] } of operations) {
    for (const other of after) dependents[other]!.push(id);
    for (const other of copied) copyDependents[other]!.push(id);
    if (lane === 'compute') computeIndex.set(id, computes.push(id) - 1);
    if (action.kind !== 'update') continue;
    updateCounts.set(action.group, (updateCounts.get(action.group) ?? 0) + 1);
  }
  return { dependents, copyDependents, computes, computeIndex, updateCounts };
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
    this.#waits = new Int32Array(count);
    this.#isStarted = new Uint8Array(count);
    this.#isCopied = new Uint8Array(count);
    this.#starts = new Float64Array(count);
    this.#ends = new Float64Array(count);
    for (const { id, after, copied = [] } of operations) {
      // The launch of the operation before, and the end of the one before that.
      const earlier = Math.min(2, graph.computeIndex.get(id) ?? 0);
      this.#waits[id] = after.length + copied.length + earlier;
    }
    this.#open = count;
    this.#unfinished = operations.filter(({ action }) => action.kind !== 'update').length;
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
    for (const other of this.#graph.copyDependents[id]!) this.arrive(other);
  }

  done(id: OperationId): void {
    const { now } = this.#clock;
    if (this.#isStarted[id] === 0) this.started(id, now);
    this.#ends[id] = now;
    this.#open -= 1;
    const operation = this.#plan.operations[id]!;
    if (operation.action.kind !== 'update') this.#unfinished -= 1;
    this.copied(id);
    if (operation.lane === 'compute') this.#arriveAtCompute(id, 2);
    for (const other of this.#graph.dependents[id]!) this.arrive(other);
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

  /** The compute operation `distance` after `id` has one thing less to wait for. */
  #arriveAtCompute(id: OperationId, distance: number): void {
    const next = this.#graph.computes[this.#graph.computeIndex.get(id)! + distance];
    if (next !== undefined) this.arrive(next);
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

/**
 * @file Predicts how steps run: an event simulation by the executor's rules
 * (src/engine/step-executor.ts).
 *
 * Compute keeps program order, two operations launched at most. Transfers take turns on links piece
 * by piece, the lowest operation first. Updates run on workers and share the NVMe links; the next
 * step waits for them group by group. A step begins when the one before has finished and the update
 * before that is over.
 *
 * Pure functions.
 */
import { LINKS, type Lane, type Link } from '../../core/types.js';
import { laneSeconds, type StepCosts } from './costs.js';
import { EventQueue, MinHeap } from './event-queue.js';
import { SimulatedBuffers, SimulatedLink } from './simulated-link.js';
import { pieceCount, startTransfer, type TransferLanes } from './simulated-transfer.js';
import { graphOf, lower, RunningStep, type Fence, type Graph } from './running-step.js';
import type { Operation, StepPlan } from './step-plan.js';
import { timelineOf, type Timeline } from './timeline.js';

/** Steps to simulate: in order, or one several times. */
export type StepSequence =
  readonly StepPlan[] | { readonly plan: StepPlan; readonly repeat: number };

/** Seconds that operation `operation` of step `step` takes of a lane. */
export type LaneSeconds = (step: number, operation: Operation, lane: Lane) => number;

/** What runs side by side, however long it takes. */
export interface SimulationRules {
  /** Updates under way at once: threads of the optimizer pool. */
  readonly workers: number;
  /** Whether these share what they compute by (memory's bandwidth), so that two take twice as long
   * as one. Default false. */
  readonly sharedUpdates?: boolean;
  /** Staging buffers, `MemoryPlan.stagingCount` and `.spillStagingCount`. Default: no limit. */
  readonly buffers?: { readonly read: number; readonly write: number };
  /** Seconds of the host: from a compute operation's turn until its kernels are launched; after the
   * pieces of a transfer. Default 0. */
  readonly hostSeconds?: (step: number, operation: Operation) => number;
  /** How much a read and a write exclude each other on NVMe: 0 not at all, 1 wholly. Default 0. */
  readonly nvmeSharing?: number;
}

/** Pieces that are admitted at a time, as in src/engine/link-turns.ts. */
const IN_FLIGHT: Readonly<Record<Link, number>> = {
  upload: 2,
  download: 2,
  nvme_read: 8,
  nvme_write: 8,
};

/** Pieces of one shard at most; a large model has thousands of shards. */
const UPDATE_PIECES = 2;

/** Predicts the steps of `sequence` by `costs`. */
export function simulate(sequence: StepSequence, costs: StepCosts): Timeline {
  const seconds = laneSeconds(costs);
  return simulateWith(sequence, seconds, { ...costs, sharedUpdates: true });
}

/** The same, by given durations: those of a run's spans, for example. */
export function simulateWith(
  sequence: StepSequence,
  seconds: LaneSeconds,
  rules: SimulationRules,
): Timeline {
  return new Simulation(seconds, rules).run(sequence);
}

interface Job {
  readonly priority: number;
  readonly run: () => void;
}

class Simulation {
  readonly #seconds: LaneSeconds;
  readonly #rules: SimulationRules;
  readonly #clock = new EventQueue();
  readonly #lanes: TransferLanes;
  readonly #graphs = new Map<StepPlan, Graph>();
  /** Of the last updates, by group. */
  readonly #fences = new Map<number, Fence>();
  readonly #jobs = new MinHeap<Job>((a, b) => a.priority < b.priority);
  readonly #steps: RunningStep[] = [];
  #freeWorkers: number;
  #computeFreeAt = 0;
  #updateFreeAt = 0;

  constructor(seconds: LaneSeconds, rules: SimulationRules) {
    this.#seconds = seconds;
    this.#rules = rules;
    this.#freeWorkers = rules.workers;
    const { buffers = { read: Infinity, write: Infinity }, nvmeSharing = 0 } = rules;
    const link = (name: Link) => new SimulatedLink(this.#clock, IN_FLIGHT[name]);
    const links = Object.fromEntries(LINKS.map((name) => [name, link(name)])) as Record<
      Link,
      SimulatedLink
    >;
    links.nvme_read.shareWith(links.nvme_write, nvmeSharing);
    links.nvme_write.shareWith(links.nvme_read, nvmeSharing);
    this.#lanes = {
      clock: this.#clock,
      links,
      readBuffers: new SimulatedBuffers(buffers.read),
      writeBuffers: new SimulatedBuffers(buffers.write),
    };
  }

  run(sequence: StepSequence): Timeline {
    const plans =
      'plan' in sequence ? Array.from({ length: sequence.repeat }, () => sequence.plan) : sequence;
    const begin = (index: number): void => {
      const plan = plans[index];
      if (plan === undefined) return;
      this.#steps.push(
        this.#start(index, plan, () => {
          const before = this.#steps[index - 1];
          if (before === undefined) begin(index + 1);
          else before.whenUpdated(() => begin(index + 1));
        }),
      );
    };
    begin(0);
    this.#clock.drain();
    return timelineOf(this.#steps.map((step) => step.result));
  }

  #start(index: number, plan: StepPlan, finished: () => void): RunningStep {
    let graph = this.#graphs.get(plan);
    if (graph === undefined) this.#graphs.set(plan, (graph = graphOf(plan)));
    const step = new RunningStep(plan, graph, this.#clock, (operation) =>
      this.#begin(index, step, operation),
    );
    step.whenFinished(finished);
    for (const { id, fences } of plan.operations) {
      if (fences === undefined) continue;
      for (const group of fences) {
        const fence = this.#fences.get(group);
        if (fence === undefined || fence.open === 0) continue;
        step.wait(id);
        fence.waiters.push(() => step.arrive(id));
      }
    }
    for (const [group, open] of graph.updateCounts) {
      const fence = { open, waiters: [] };
      step.fences.set(group, fence);
      this.#fences.set(group, fence);
    }
    this.#clock.at(this.#clock.now, () => step.open());
    return step;
  }

  #begin(index: number, step: RunningStep, operation: Operation): void {
    const { id, lane, action } = operation;
    const seconds = (of: Lane): number => this.#seconds(index, operation, of);
    const { now } = this.#clock;
    const hostSeconds = this.#rules.hostSeconds?.(index, operation) ?? 0;
    if (lane === 'compute') {
      const launchAt = now + hostSeconds;
      const took = seconds('compute');
      this.#clock.at(launchAt, () => {
        const start = Math.max(launchAt, this.#computeFreeAt);
        this.#computeFreeAt = start + took;
        step.launched(id, start);
        this.#clock.at(this.#computeFreeAt, () => step.done(id));
      });
      step.addBusy('compute', took);
    } else if (action.kind === 'update') {
      // Those of the step before come first.
      const priority = index * 2 ** 32 + id;
      this.#jobs.push({ priority, run: () => this.#update(step, operation, seconds) });
      this.#work();
    } else if (action.kind === 'norm') {
      step.started(id, now);
      this.#clock.at(now + seconds('update'), () => step.done(id));
    } else {
      const took = { upload: 0, download: 0, nvme_read: 0, nvme_write: 0 };
      for (const link of LINKS) {
        took[link] = seconds(link);
        step.addBusy(link, took[link]);
      }
      const isFetch = lane === 'upload';
      const shape = { priority: id, isFetch, bytes: operation.bytes, seconds: took, hostSeconds };
      startTransfer(shape, this.#lanes, {
        started: (time) => step.started(id, time),
        copied: () => step.copied(id),
        done: () => step.done(id),
      });
    }
  }

  #work(): void {
    while (this.#freeWorkers > 0) {
      const job = this.#jobs.pop();
      if (job === undefined) return;
      this.#freeWorkers -= 1;
      job.run();
    }
  }

  /** Reading, arithmetic and writing of a shard overlap tile by tile. */
  #update(step: RunningStep, operation: Operation, seconds: (lane: Lane) => number): void {
    const { id, action, bytes } = operation;
    const { workers, sharedUpdates = false } = this.#rules;
    const took = seconds('update');
    const start = sharedUpdates ? Math.max(this.#clock.now, this.#updateFreeAt) : this.#clock.now;
    this.#updateFreeAt = start + took;
    step.started(id, start);
    step.addBusy('update', sharedUpdates ? took : took / workers);
    let open = 1;
    const close = (): void => {
      open -= 1;
      if (open > 0) return;
      this.#freeWorkers += 1;
      step.done(id);
      if (action.kind === 'update') lower(step.fences.get(action.group)!);
      this.#work();
    };
    for (const link of ['nvme_read', 'nvme_write'] as const) {
      const moved = bytes[link] ?? 0;
      const linkSeconds = seconds(link);
      if (linkSeconds === 0) continue;
      step.addBusy(link, linkSeconds);
      const pieces = pieceCount(moved, UPDATE_PIECES);
      open += pieces;
      for (let piece = 0; piece < pieces; piece += 1) {
        this.#lanes.links[link].move(id, moved / pieces, linkSeconds / pieces, close);
      }
    }
    this.#clock.at(start + took, close);
  }
}

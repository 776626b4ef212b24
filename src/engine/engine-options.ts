/**
 * @file Options of `Engine.create`: the configuration's keys in camelCase, with the same defaults.
 */
import type { Logger } from '../../core/logger.js';
import type { ComputeDtype } from '../../core/types.js';
import type { IoBackend } from '../../tiers/nvme/io-backend.js';
import type { FaultPlan } from '../../tiers/nvme/fault-plan.js';
import type { MicroBatch, Model, ParamName } from '../model/block.js';
import type { OffloadDevice } from '../plan/placement.js';
import type { Operation } from '../plan/step-plan.js';
import type { Throttles } from './link-turns.js';
import type { HostWork, Span } from './step-executor.js';

/** AdamW and clipping; defaults are the configuration's. */
export interface OptimizerOptions {
  /** Learning rate of steps that name none. Default 2e-5. */
  readonly learningRate?: number;
  readonly beta1?: number;
  readonly beta2?: number;
  readonly epsilon?: number;
  /** Decoupled; never applied to parameters with `decay: false`. Default 0. */
  readonly weightDecay?: number;
  /** Clips the global gradient norm; 0 turns clipping off. Default 1. */
  readonly maxGradNorm?: number;
}

/** Where training goes on from: moments by parameter, whatever memory they came from. */
export interface InitialState {
  /** Optimizer steps already taken. */
  readonly step: number;
  /** Dtype of the run that left the states. */
  readonly dtype: ComputeDtype;
  /** Fills `target` with elements `offset … offset + target.length` of a moment. */
  readMoment(
    parameter: ParamName,
    state: 'exp_avg' | 'exp_avg_sq',
    offset: number,
    target: Float32Array,
  ): Promise<void>;
  /** The same for the low halves of a bfloat16 run's master weights, as bits. */
  readMasterLow(parameter: ParamName, offset: number, target: Uint16Array): Promise<void>;
}

/** Where an engine computes, and where and how it keeps what it holds. */
export interface ResourceOptions {
  /** Name of the device. Default `auto`: `native` where the addon loads, else `cpu`. */
  readonly device?: string;
  /** Budgets in bytes or as text such as `8GiB`. Defaults: docs/CONFIG.md. */
  readonly deviceMemory?: number | string;
  readonly hostMemory?: number | string;
  readonly nvmeMemory?: number | string;
  /** One or several folders; without one nothing is put on NVMe. */
  readonly nvmePath?: string | readonly string[];
  /** Folder of this run within each `nvmePath`. Default: a fresh name. */
  readonly runId?: string;
  /** Element type of the weights that compute reads; the master is always float32. */
  readonly dtype?: ComputeDtype;
  readonly offloadParam?: OffloadDevice;
  /** Most elements per shard, a multiple of 4096. Default 16,777,216. */
  readonly subGroupSize?: number;
  readonly seed?: number;
  /** Default: silent. */
  readonly logger?: Logger;
  /**
   * How NVMe files are reached; tests pass a simulated disk and the workers' faults.
   *
   * @internal
   */
  readonly io?: { readonly backend: IoBackend; readonly workerFaults?: FaultPlan };
}

/** How steps are executed; for tests, benchmarks and traces. Changes no bit of a result. */
export interface ExecutionOptions {
  /** Bytes per second at most, by link. */
  readonly throttles?: Throttles;
  /** Seconds that a compute operation or an update takes at least. */
  readonly pace?: (operation: Operation) => number;
  /** Told of each operation as it ran. */
  readonly onSpan?: (span: Span) => void;
  /** Told what the main thread did for an operation beside its spans. */
  readonly onHostWork?: (work: HostWork) => void;
}

export interface EngineOptions extends ResourceOptions {
  readonly execution?: ExecutionOptions;
  readonly model: Model;
  /** A micro-batch of the largest shapes that will be used; its values do not matter. */
  readonly exampleBatch: MicroBatch;
  readonly offloadOptimizer?: OffloadDevice;
  /** Default `auto`: the order that moves fewer bytes. */
  readonly microBatchOrder?: 'auto' | 'vertical' | 'horizontal';
  /** Most micro-batches per step. Default 1. */
  readonly gradientAccumulationSteps?: number;
  readonly optimizer?: OptimizerOptions;
  /** Threads of the optimizer pool. Default: the smaller of 2 and the cores. */
  readonly optimizerWorkers?: number;
  /**
   * States to go on from, for the weights that `model` gives; of a run of the same `dtype`.
   * Default: zero moments, step 0.
   */
  readonly initialState?: InitialState;
}

/** What `Engine.step` resolves with. */
export interface StepResult {
  /** One-based number of the step. */
  readonly step: number;
  /** Mean over the unmasked loss terms of the accumulated batch. */
  readonly loss: number;
  /** Global gradient norm before clipping. */
  readonly gradNorm: number;
  /** Resolves when every weight of the step is updated; rejects when that failed. */
  readonly committed: Promise<void>;
}

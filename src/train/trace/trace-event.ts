/**
 * @file Chrome Trace Event Format, as far as Spillway writes it; chrome://tracing, Perfetto and
 * speedscope read it. Names are the format's own (Duat and Sinclair, "Trace Event Format", Google).
 *
 * `ts` and `dur` are microseconds with three decimals, from the start of the trace.
 */
import type { Lane, Link } from '../../../core/types.js';

/** Processes of a trace. */
export const PROCESSES = { measured: 1, predicted: 2 } as const;

/** A lane, or work within host memory. */
export type Track = Lane | 'host';

/** What a piece or an operation says of itself. */
export interface OperationArguments {
  /** One-based number of the optimizer step; of an evaluation, the one before it. */
  readonly step: number;
  readonly evaluation?: true;
  /** Number of the operation in its step, or in the plan of the evaluation. */
  readonly operation: number;
  readonly action?: string;
  readonly phase?: string;
  readonly block?: number;
  readonly micro_batch?: number;
  readonly micro_batches?: readonly number[];
  readonly tile?: number;
  readonly shard?: number;
  readonly group?: number;
  readonly param?: string;
  /** Bytes that it moved, by link. */
  readonly bytes?: Readonly<Partial<Record<Link, number>>>;
}

/** What a step says of itself. */
export interface StepArguments {
  readonly step: number;
  /** Of a predicted one. */
  readonly busy_seconds?: BusySeconds;
}

/** Seconds in which transfers and kernels keep their lanes busy. */
export type BusySeconds = Readonly<Record<Link | 'compute', number>>;

/** What compute waited for. */
export interface StallArguments {
  /** The step whose compute waited. */
  readonly step: number;
  /** What it waited for; absent where that was no operation. */
  readonly lane?: Track;
  /** The operation that it waited for, and its step. */
  readonly for_step?: number;
  readonly for_operation?: number;
}

export type SliceArguments = OperationArguments | StepArguments | StallArguments;

interface Placed {
  readonly pid: number;
  readonly tid: number;
}

interface Timed extends Placed {
  readonly name: string;
  readonly cat: string;
  readonly ts: number;
}

export type TraceEvent =
  /** Names a process or a thread, and says where these stand. */
  | (Placed & {
      readonly ph: 'M';
      readonly name: MetadataName;
      readonly args: { readonly name: string } | { readonly sort_index: number };
    })
  /** A slice: begins and ends. */
  | (Timed & { readonly ph: 'X'; readonly dur: number; readonly args: SliceArguments })
  /** An arrow begins in the slice around `ts`. */
  | (Timed & { readonly ph: 's'; readonly id: number })
  /** The arrow ends in the slice around `ts`. */
  | (Timed & { readonly ph: 'f'; readonly id: number; readonly bp: 'e' })
  | (Timed & { readonly ph: 'C'; readonly args: { readonly bytes: number } });

/** Facts about processes and threads. */
export type MetadataName =
  'process_name' | 'process_sort_index' | 'thread_name' | 'thread_sort_index';

/**
 * @file Chrome Trace Event Format, as far as Spillway writes it; chrome://tracing, Perfetto and
 * speedscope read it. Names are the format's own (Duat and Sinclair, "Trace Event Format", Google).
 *
 * `ts` and `dur` are microseconds with three decimals, from the start of the trace.
 */
import type { Link } from '../../../core/types.js';

/** What a piece or an operation says of itself. */
export interface SliceArguments {
  /** One-based number of the optimizer step. */
  readonly step: number;
  /** Number of the operation in its step; absent where the slice is a step. */
  readonly operation?: number;
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
  /** Names a process or a thread, and says where threads stand. */
  | (Placed & {
      readonly ph: 'M';
      readonly name: 'process_name' | 'thread_name' | 'thread_sort_index';
      readonly args: { readonly name: string } | { readonly sort_index: number };
    })
  /** A slice: begins and ends. */
  | (Timed & { readonly ph: 'X'; readonly dur: number; readonly args: SliceArguments })
  /** An arrow begins in the slice around `ts`. */
  | (Timed & { readonly ph: 's'; readonly id: number })
  /** The arrow ends in the slice around `ts`. */
  | (Timed & { readonly ph: 'f'; readonly id: number; readonly bp: 'e' })
  | (Timed & { readonly ph: 'C'; readonly args: { readonly bytes: number } });

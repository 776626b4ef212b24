/**
 * @file The members of tfjs's engine that the tape walker and coarse operations use.
 *
 * Most are private in tfjs's typings. tfjs-core is pinned to 4.22.0, and `tapeEngine` asserts that
 * each is there before anything uses it, so that another version fails by name and not by wrong
 * results. Source: tfjs-core 4.22.0, src/engine.ts and src/tape.ts.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../core/errors.js';

/** Gradient of each input of a node, computed when called. Keys are input names. */
export type NamedGradients = Readonly<Record<string, () => Tensor>>;

/** One recorded operation. */
export interface TapeNode {
  readonly id: number;
  readonly kernelName: string;
  readonly inputs: Readonly<Record<string, Tensor>>;
  readonly outputs: readonly Tensor[];
  /** Kept clones that share their data with the tensors that the gradient reads. */
  readonly saved?: readonly Tensor[];
  /** Absent when no gradient is known for the kernel. A null dy stands for zeros. */
  readonly gradient?: (dys: readonly (Tensor | null)[]) => NamedGradients;
}

/** A coarse operation as the engine runs it: one node, whatever happens inside. */
export interface CoarseCall {
  forwardFunc(backend: unknown, save: (tensors: Tensor[]) => void): Tensor | Tensor[];
  backwardsFunc(dys: Tensor | Tensor[], saved: Tensor[]): NamedGradients;
  inputs: Record<string, Tensor>;
}

/** The part of tfjs's engine that this folder relies on. */
export interface TapeEngine {
  readonly state: {
    activeTape: TapeNode[] | null;
    gradientDepth: number;
    kernelDepth: number;
  };
  startTape(): void;
  endTape(): void;
  nextTensorId(): number;
  runKernelFunc(call: CoarseCall): Tensor | Tensor[];
}

const METHODS = ['startTape', 'endTape', 'nextTensorId', 'runKernelFunc'] as const;
const COUNTERS = ['gradientDepth', 'kernelDepth'] as const;

/**
 * The global engine of tfjs-core.
 *
 * @throws INTERNAL when the installed tfjs-core lacks a member named here
 */
export function tapeEngine(): TapeEngine {
  const engine = tf.engine() as unknown as Partial<TapeEngine>;
  const missing = [
    ...METHODS.filter((name) => typeof engine[name] !== 'function'),
    ...COUNTERS.filter((name) => typeof engine.state?.[name] !== 'number'),
  ];
  if (missing.length > 0) {
    throw new SpillwayError(
      'INTERNAL',
      "tfjs-core's engine lacks members that Spillway relies on; install @tensorflow/tfjs-core 4.22.0",
      { version: tf.version_core, missing },
    );
  }
  return engine as TapeEngine;
}

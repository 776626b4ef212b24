/**
 * @file Coarse operations: one tape node with its own forward and backward.
 *
 * A norm or an attention made of tfjs operations records a dozen nodes and saves a tensor for most
 * of them. As a coarse operation it records one node and saves what its backward says it needs.
 * Works under our tape (tape.ts), under `tf.grads` and without any tape (nothing is saved then).
 * The forward pass runs in a tidy: its temporaries are freed when it returns.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import { tapeEngine, type NamedGradients } from './tape-engine.js';

/** What a coarse operation's forward pass gives. */
export interface ForwardResult {
  /** New tensors (or inputs), handed to the operation's caller. */
  readonly outputs: readonly Tensor[];
  /** What `backward` reads: inputs, outputs or temporaries. Kept, sharing their data, while a tape
   * is on; inputs and outputs cost nothing extra while they live anyway. */
  readonly saved: readonly Tensor[];
}

/** Gradient of one input; a function is called only if that gradient is needed; null: none. */
export type InputGradient = Tensor | (() => Tensor) | null;

/** Definition of a coarse operation over `inputs` with plain data `attrs`. */
export interface OpDefinition<Attrs> {
  forward(inputs: readonly Tensor[], attrs: Attrs): ForwardResult;
  /**
   * @param dys one per output (zeros for an output that nothing reads)
   * @param saved what `forward` saved, in that order; not to be disposed
   * @returns one per input, float32, of its shape. Called in a tidy.
   */
  backward(
    dys: readonly Tensor[],
    saved: readonly Tensor[],
    attrs: Attrs,
  ): readonly InputGradient[];
}

/** Applies a coarse operation; returns its outputs. */
export type CoarseOp<Attrs> = (inputs: readonly Tensor[], attrs: Attrs) => Tensor[];

/**
 * Defines a coarse operation.
 *
 * @param name shown in errors, e.g. `layerNorm`; tfjs kernel names are spelled with a capital, so
 *   it cannot shadow one
 */
export function defineOp<Attrs>(name: string, definition: OpDefinition<Attrs>): CoarseOp<Attrs> {
  assert(/^[a-z]/.test(name), 'names of coarse operations begin with a small letter', { name });
  return (inputs, attrs) =>
    // tfjs names the tape node after the innermost scope.
    tf.tidy(`spillway.${name}`, () => {
      const outputs = tapeEngine().runKernelFunc({
        inputs: Object.fromEntries(inputs.entries()),
        forwardFunc: (_backend, save) => {
          const result = definition.forward(inputs, attrs);
          save([...result.saved]);
          // On the tape an output must not be an input.
          return result.outputs.map((y) => (inputs.includes(y) ? tf.clone(y) : y));
        },
        backwardsFunc: (dys, saved) => {
          const list = Array.isArray(dys) ? dys : [dys];
          return namedGradients(name, inputs, definition.backward(list, saved, attrs));
        },
      });
      return Array.isArray(outputs) ? outputs : [outputs];
    });
}

function namedGradients(
  name: string,
  inputs: readonly Tensor[],
  gradients: readonly InputGradient[],
): NamedGradients {
  assert(gradients.length === inputs.length, 'one gradient per input of a coarse operation', {
    name,
    inputs: inputs.length,
    gradients: gradients.length,
  });
  const entries = inputs.map((input, index) => {
    const gradient = gradients[index] ?? null;
    const shape = input.shape;
    const compute = (): Tensor => {
      if (gradient === null) return tf.zeros(shape, 'float32');
      return typeof gradient === 'function' ? gradient() : gradient;
    };
    return [index, compute] as const;
  });
  return Object.fromEntries(entries);
}

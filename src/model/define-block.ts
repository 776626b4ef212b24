/**
 * @file A user's own block: a function of tfjs tensors, with its parameters.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../core/errors.js';
import type { BlockAux, DenseBlock, ParamInit, ParamName, Params } from './block.js';

/** A parameter of a user's block. */
export interface ParamDefinition {
  readonly shape: readonly number[];
  /** Default: normal with std 0.02 for rank 2 and more, else zeros. */
  readonly init?: ParamInit;
  /** Whether weight decay applies. Default: for rank 2 and more. */
  readonly decay?: boolean;
  /** Default true. */
  readonly trainable?: boolean;
}

/** What `defineBlock` takes. */
export interface BlockDefinition {
  /** Unique in the model. */
  readonly name: string;
  /** The parameters that this block owns, by their names, unique in the model. */
  readonly params: Readonly<Record<ParamName, ParamDefinition>>;
  /** Parameters of other blocks that it reads too (tied weights). */
  readonly shares?: readonly ParamName[];
  /** Fields of the batch that it needs on the device, in `aux.tensors`. */
  readonly reads?: readonly string[];
  /** Blocks with equal keys must allocate alike; default: the block's name. */
  readonly kindKey?: string;
  /**
   * The block's function: pure, of registered-gradient tfjs operations, replayed in the reverse
   * pass. Need not dispose anything, and must not dispose its arguments.
   *
   * @param params tensors of the block's own and shared parameters
   * @param input output of the block before; undefined in the first block
   * @returns the output; in the last block the losses, one element per loss term, unscaled
   */
  apply(params: Params, input: Tensor | undefined, aux: BlockAux): Tensor;
  /** For generation, see DenseBlock.extend; a block without it cannot generate. */
  readonly extend?: NonNullable<DenseBlock['extend']>;
}

/**
 * The block of a definition, for `defineModel`.
 *
 * @throws BLOCK_INVALID when names are empty or a shared parameter is also owned
 */
export function defineBlock(definition: BlockDefinition): DenseBlock {
  const { name, params, shares = [], reads, extend } = definition;
  if (name === '') {
    throw new SpillwayError('BLOCK_INVALID', 'a block has no name; name it', {});
  }
  const both = shares.find((param) => Object.hasOwn(params, param));
  if (both !== undefined) {
    throw new SpillwayError(
      'BLOCK_INVALID',
      `block ${name} both owns and shares ${both}; list it once`,
      { block: name, param: both },
    );
  }
  const owns = Object.entries(params).map(([param, { shape, init, decay, trainable }]) => {
    const isMatrix = shape.length >= 2;
    return {
      name: param,
      shape,
      init: init ?? (isMatrix ? { kind: 'normal', std: 0.02 } : { kind: 'zeros' }),
      decay: decay ?? isMatrix,
      ...(trainable !== undefined && { trainable }),
    } as const;
  });
  return {
    kind: 'dense',
    name,
    kindKey: definition.kindKey ?? `user(${name})`,
    owns,
    uses: [...owns.map((spec) => spec.name), ...shares],
    ...(reads !== undefined && { reads }),
    ...(extend !== undefined && { extend }),
    apply: (tensors, inputs, aux) => [definition.apply(tensors, inputs[0], aux)],
  };
}

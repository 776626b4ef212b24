/**
 * @file The first block: token embedding, and GPT-2's learned positions.
 *
 * Of the token table only the rows of the batch's ids are read, one per position ([B*T, C]); of the
 * position table the first T rows, shared by all sequences.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../core/errors.js';
import type { BlockAux, ParamSpec, RowBlock, RowGather } from './block.js';
import { fieldOf, tokenShape } from './block-params.js';

/** What a token embedding is made of. */
export interface TokenEmbeddingOptions {
  readonly name: string;
  /** Token table [V, C]. */
  readonly tokens: ParamSpec;
  /** Position table [n_positions, C], or none. */
  readonly positions?: ParamSpec;
}

/**
 * The embedding block; its output is [B, T, C].
 *
 * Its gathers throw DATA_INVALID when a sequence is longer than the position table.
 */
export function tokenEmbedding(options: TokenEmbeddingOptions): RowBlock {
  const { name, tokens, positions } = options;
  const width = tokens.shape[1]!;
  const owns = positions === undefined ? [tokens] : [tokens, positions];
  const gathers: RowGather[] = [
    {
      param: tokens.name,
      indices: (fields) => Int32Array.from(fieldOf(fields, 'input_ids').data),
    },
  ];
  if (positions !== undefined) {
    gathers.push({
      param: positions.name,
      indices: (fields) => positionIndices(fields, positions),
    });
  }
  return {
    kind: 'row',
    name,
    kindKey: `token-embedding(${owns.map(({ shape }) => shape.join('x')).join(',')})`,
    owns,
    uses: owns.map((spec) => spec.name),
    gathers,
    apply: ([tokenRows, positionRows], aux) => {
      const shaped = tf.reshape(tokenRows!, [...tokenShape(aux.fields), width]);
      return [positionRows === undefined ? shaped : tf.add(shaped, positionRows)];
    },
    backward: (dy, aux) => rowGradients(dy, aux, width, positions !== undefined),
  };
}

function rowGradients(dy: Tensor, aux: BlockAux, width: number, positions: boolean): Tensor[] {
  const [batchSize, length] = tokenShape(aux.fields);
  const tokenRows = tf.reshape(dy, [batchSize * length, width]);
  return positions ? [tokenRows, tf.sum(dy, 0)] : [tokenRows];
}

function positionIndices(fields: BlockAux['fields'], positions: ParamSpec): Int32Array {
  const [, length] = tokenShape(fields);
  const limit = positions.shape[0]!;
  if (length > limit) {
    throw new SpillwayError(
      'DATA_INVALID',
      'a sequence is longer than the model has positions; lower max_length',
      { length, positions: limit },
    );
  }
  return Int32Array.from({ length }, (_, position) => position);
}

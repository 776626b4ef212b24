/**
 * @file The first block: token embedding, and GPT-2's learned positions.
 *
 * Of the token table only the rows of the batch's ids are read, one per token ([B*T, C]); of the
 * position table the first T rows, shared by all sequences, or one row per token ([B*T, C]) where
 * the batch has `position_ids`.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../core/errors.js';
import type { BlockAux, ParamSpec, RowBlock, RowGather } from './block.js';
import { fieldOf, positionsOf, tokenShape } from './block-params.js';

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
      indices: (fields, first) => positionIndices(fields, positions, first),
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
      const shape = [...tokenShape(aux.fields), width];
      const shaped = tf.reshape(tokenRows!, shape);
      if (positionRows === undefined) return [shaped];
      const own = aux.fields['position_ids'] !== undefined;
      return [tf.add(shaped, own ? tf.reshape(positionRows, shape) : positionRows)];
    },
    backward: (dy, aux) => rowGradients(dy, aux, width, positions !== undefined),
  };
}

function rowGradients(dy: Tensor, aux: BlockAux, width: number, positions: boolean): Tensor[] {
  const [batchSize, length] = tokenShape(aux.fields);
  const tokenRows = tf.reshape(dy, [batchSize * length, width]);
  if (!positions) return [tokenRows];
  const own = aux.fields['position_ids'] !== undefined;
  return [tokenRows, own ? tf.clone(tokenRows) : tf.sum(dy, 0)];
}

function positionIndices(fields: BlockAux['fields'], positions: ParamSpec, first = 0): Int32Array {
  const [, length] = tokenShape(fields);
  const limit = positions.shape[0]!;
  if (first + length > limit) {
    throw new SpillwayError(
      'DATA_INVALID',
      'a sequence is longer than the model has positions; lower max_length',
      { length: first + length, positions: limit },
    );
  }
  return positionsOf(fields) ?? Int32Array.from({ length }, (_, position) => first + position);
}

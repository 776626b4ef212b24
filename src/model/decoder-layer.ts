/**
 * @file A decoder layer as a dense block: attention and feed-forward, each added to its input.
 *
 * Shapes: x [B, T, C]; rows [N, C], N = B*T.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import type { DenseBlock, ParamSpec, Params } from './block.js';
import { continuedAttention } from './continued-attention.js';
import { residualAdd } from './ops/residual-add.js';
import { sequenceAttention, type Attention } from './sequence-attention.js';

/** What distinguishes one family's layer from another's. */
export interface DecoderLayer {
  readonly name: string;
  readonly kindKey: string;
  readonly owns: readonly ParamSpec[];
  /** C */
  readonly hiddenSize: number;
  /** Norm and attention of `rows`: [N, C]. */
  attention(params: Params, rows: Tensor, attention: Attention): Tensor;
  /** Norm and feed-forward of `rows`: [N, C]. */
  feedForward(params: Params, rows: Tensor): Tensor;
}

/** The block of `layer`. */
export function decoderLayer(layer: DecoderLayer): DenseBlock {
  const { name, kindKey, owns } = layer;
  return {
    kind: 'dense',
    name,
    kindKey,
    owns,
    uses: owns.map((spec) => spec.name),
    readsIfPresent: ['documents'],
    apply: (params, [x], aux) => {
      const [batchSize, length] = x!.shape as [number, number, number];
      const attention = sequenceAttention([batchSize, length], aux);
      return [run(layer, params, x!, attention).output];
    },
    extend: (params, [x], cached, place) => {
      const attention = continuedAttention(cached, place);
      return run(layer, params, x!, attention, () => attention.added());
    },
  };
}

/** [B, T, C] of [B, T, C], and tensors of the attention that outlive it. */
function run(
  layer: DecoderLayer,
  params: Params,
  x: Tensor,
  attention: Attention,
  added: () => Tensor[] = () => [],
): { output: Tensor; added: Tensor[] } {
  const rows = tf.reshape(x, [-1, layer.hiddenSize]);
  // Tidies free, half a layer at a time, what no gradient saved.
  const [attended, ...kept] = tf.tidy(() => {
    const sum = residualAdd(rows, layer.attention(params, rows, attention));
    return [sum, ...added()];
  });
  const output = tf.tidy(() => residualAdd(attended, layer.feedForward(params, attended)));
  return { output: tf.reshape(output, x.shape), added: kept };
}

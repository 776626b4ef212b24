/**
 * @file A decoder layer of the Llama-like families: RMSNorm, grouped-query attention with rotary
 * positions, and a gated feed-forward part.
 *
 * Parameter names and layouts are those of `save_pretrained`: Linear weights [out, in].
 *
 * Shapes: C hidden, H query heads, Hkv key-value heads, D head width, N = B*T rows.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import type { DenseBlock, ParamSpec, Params } from './block.js';
import { matrixSpec, tensorOf, vectorSpec } from './block-params.js';
import { decoderLayer } from './decoder-layer.js';
import type { LlamaConfig } from './llama-config.js';
import { linear } from './ops/linear.js';
import { rmsNorm } from './ops/rms-norm.js';
import { swiglu } from './ops/swiglu.js';
import type { Attention } from './sequence-attention.js';

const LINEAR = { weight: 'out,in' } as const;

/** One layer of a model. */
interface Layer {
  readonly config: LlamaConfig;
  readonly index: number;
  /** Of its parameters' names. */
  readonly prefix: string;
}

/** The block of layer `index`. */
export function llamaLayer(config: LlamaConfig, index: number): DenseBlock {
  const layer = { config, index, prefix: `model.layers.${index}.` };
  const { hiddenSize } = config;
  return decoderLayer({
    name: `layers.${index}`,
    kindKey: kindKeyOf(layer),
    owns: layerSpecs(layer),
    hiddenSize,
    attention: (params, rows, attend) => attention(params, layer, rows, attend),
    feedForward: (params, rows) => feedForward(params, layer, rows),
  });
}

/** Everything that changes what the layer allocates, computes or refuses. */
function kindKeyOf({ config, index }: Layer): string {
  const { hiddenSize, innerSize, heads, keyHeads, headWidth, epsilon, rope, biases } = config;
  const flags = [
    ...Object.entries(biases).flatMap(([name, has]) => (has ? [`${name}Bias`] : [])),
    ...(config.headNorms ? ['headNorms'] : []),
    ...(config.fusedProjections ? ['fused'] : []),
    ...(config.limits[index] ?? []).map(({ field, length }) => `${field}=${length}`),
  ];
  const sizes = `C=${hiddenSize},H=${heads}/${keyHeads}x${headWidth},inner=${innerSize}`;
  return `llama-layer(${[sizes, `eps=${epsilon}`, ...flags, `rope=${rope.key}`].join(',')})`;
}

/** Name, outputs, inputs and bias of each projection. */
type Projection = readonly [name: string, out: number, into: number, biased: boolean];

function projectionsOf({ config }: Layer): { attention: Projection[]; feedForward: Projection[] } {
  const { hiddenSize, innerSize, heads, keyHeads, headWidth, biases, fusedProjections } = config;
  const queryWidth = heads * headWidth;
  const keyWidth = keyHeads * headWidth;
  const separate: Projection[] = [
    ['self_attn.q_proj', queryWidth, hiddenSize, biases.qkv],
    ['self_attn.k_proj', keyWidth, hiddenSize, biases.qkv],
    ['self_attn.v_proj', keyWidth, hiddenSize, biases.qkv],
  ];
  const joined: Projection[] = [
    ['self_attn.qkv_proj', queryWidth + 2 * keyWidth, hiddenSize, biases.qkv],
  ];
  const gateAndUp: Projection[] = fusedProjections
    ? [['mlp.gate_up_proj', 2 * innerSize, hiddenSize, biases.mlp]]
    : [
        ['mlp.gate_proj', innerSize, hiddenSize, biases.mlp],
        ['mlp.up_proj', innerSize, hiddenSize, biases.mlp],
      ];
  return {
    attention: [
      ...(fusedProjections ? joined : separate),
      ['self_attn.o_proj', hiddenSize, queryWidth, biases.output],
    ],
    feedForward: [...gateAndUp, ['mlp.down_proj', hiddenSize, innerSize, biases.mlp]],
  };
}

function layerSpecs(layer: Layer): ParamSpec[] {
  const { config, prefix } = layer;
  const { hiddenSize, headWidth, initStd } = config;
  const { attention: around, feedForward: after } = projectionsOf(layer);
  const specsOf = ([name, out, into, biased]: Projection): ParamSpec[] => [
    matrixSpec(`${prefix}${name}.weight`, [out, into], initStd),
    ...(biased ? [vectorSpec(`${prefix}${name}.bias`, out, 'zeros')] : []),
  ];
  const headNorms = ['q_norm', 'k_norm'].map((name) =>
    vectorSpec(`${prefix}self_attn.${name}.weight`, headWidth, 'ones'),
  );
  return [
    vectorSpec(`${prefix}input_layernorm.weight`, hiddenSize, 'ones'),
    ...around.flatMap(specsOf),
    ...(config.headNorms ? headNorms : []),
    vectorSpec(`${prefix}post_attention_layernorm.weight`, hiddenSize, 'ones'),
    ...after.flatMap(specsOf),
  ];
}

/** Attention of rows x [N, C], residual not added. */
function attention(params: Params, layer: Layer, x: Tensor, attend: Attention): Tensor {
  const { config, index, prefix } = layer;
  const { heads, keyHeads, headWidth, epsilon, rope, biases } = config;
  const normed = rmsNorm(x, tensorOf(params, `${prefix}input_layernorm.weight`), epsilon);
  const project = (name: string): Tensor =>
    projected(params, `${prefix}self_attn.${name}`, normed, biases.qkv);
  const [q, k, v] = config.fusedProjections
    ? (tf.split(
        project('qkv_proj'),
        [heads, keyHeads, keyHeads].map((count) => count * headWidth),
        1,
      ) as [Tensor, Tensor, Tensor])
    : ([project('q_proj'), project('k_proj'), project('v_proj')] as const);
  const norm = (rows: Tensor, name: string): Tensor =>
    config.headNorms
      ? headNorm(rows, tensorOf(params, `${prefix}self_attn.${name}.weight`), epsilon)
      : rows;
  const shape = { heads, keyHeads, rope, limits: config.limits[index] ?? [] };
  const attended = attend.rows([norm(q, 'q_norm'), norm(k, 'k_norm'), v], shape);
  return projected(params, `${prefix}self_attn.o_proj`, attended, biases.output);
}

/** RMSNorm of each head of rows [N, H·D]. */
function headNorm(rows: Tensor, weight: Tensor, epsilon: number): Tensor {
  return tf.reshape(rmsNorm(tf.reshape(rows, [-1, weight.size]), weight, epsilon), rows.shape);
}

/** Feed-forward part of rows x [N, C], residual not added. */
function feedForward(params: Params, { config, prefix }: Layer, x: Tensor): Tensor {
  const norm = tensorOf(params, `${prefix}post_attention_layernorm.weight`);
  const normed = rmsNorm(x, norm, config.epsilon);
  const project = (name: string, rows: Tensor): Tensor =>
    projected(params, `${prefix}mlp.${name}`, rows, config.biases.mlp);
  const [gate, up] = config.fusedProjections
    ? (tf.split(project('gate_up_proj', normed), 2, 1) as [Tensor, Tensor])
    : ([project('gate_proj', normed), project('up_proj', normed)] as const);
  return project('down_proj', swiglu(gate, up));
}

function projected(params: Params, name: string, x: Tensor, biased: boolean): Tensor {
  const bias = biased ? tensorOf(params, `${name}.bias`) : undefined;
  return linear(x, tensorOf(params, `${name}.weight`), bias, LINEAR);
}

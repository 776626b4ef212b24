/**
 * @file Llama as a chain of blocks: embedding, decoder layers, head with loss (Touvron et al. 2023,
 * arXiv 2302.13971; the arithmetic of transformers' LlamaForCausalLM).
 *
 * Parameter names and layouts are those of `save_pretrained`: Linear weights [out, in]. Grouped-query
 * attention; head tied or not.
 *
 * Shapes: B batch, T sequence, C hidden, H heads, D head width, N = B*T.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import type { Block, DenseBlock, ParamSpec, Params } from './block.js';
import { matrixSpec, tensorOf, vectorSpec } from './block-params.js';
import type { LlamaConfig } from './llama-config.js';
import { decoderLayer } from './decoder-layer.js';
import { linear } from './ops/linear.js';
import { rmsNorm } from './ops/rms-norm.js';
import { swiglu } from './ops/swiglu.js';
import type { Attention } from './sequence-attention.js';
import { tokenEmbedding } from './token-embedding.js';
import { vocabularyHead } from './vocabulary-head.js';

const LINEAR = { weight: 'out,in' } as const;

/** The blocks of a Llama model: `embedding`, `layers.0` …, `head`. */
export function buildLlama(config: LlamaConfig): Block[] {
  const { vocabSize, hiddenSize, initStd, epsilon } = config;
  const tokens = matrixSpec('model.embed_tokens.weight', [vocabSize, hiddenSize], initStd);
  const norm = vectorSpec('model.norm.weight', hiddenSize, 'ones');
  const matrix = config.tied
    ? tokens
    : matrixSpec('lm_head.weight', [vocabSize, hiddenSize], initStd);
  return [
    tokenEmbedding({ name: 'embedding', tokens }),
    ...Array.from({ length: config.layers }, (_, index) => llamaLayer(config, index)),
    vocabularyHead({
      name: 'head',
      kind: `rmsNorm(${epsilon})`,
      matrix: matrix.name,
      vocabSize,
      hiddenSize,
      owns: config.tied ? [norm] : [norm, matrix],
      normUses: [norm.name],
      norm: (params, x) => rmsNorm(x, tensorOf(params, norm.name), epsilon),
    }),
  ];
}

function llamaLayer(config: LlamaConfig, index: number): DenseBlock {
  const prefix = `model.layers.${index}.`;
  const owns = layerSpecs(config, prefix);
  const { hiddenSize, innerSize, heads, keyHeads, headWidth, epsilon, rope } = config;
  return decoderLayer({
    name: `layers.${index}`,
    kindKey: `llama-layer(C=${hiddenSize},H=${heads}/${keyHeads}x${headWidth},inner=${innerSize},eps=${epsilon},rope=${rope.key})`,
    owns,
    hiddenSize,
    attention: (params, rows, attend) => attention(params, prefix, rows, attend, config),
    feedForward: (params, rows) => feedForward(params, prefix, rows, epsilon),
  });
}

function layerSpecs(config: LlamaConfig, prefix: string): ParamSpec[] {
  const { hiddenSize, innerSize, initStd } = config;
  const queryWidth = config.heads * config.headWidth;
  const keyWidth = config.keyHeads * config.headWidth;
  return [
    vectorSpec(`${prefix}input_layernorm.weight`, hiddenSize, 'ones'),
    matrixSpec(`${prefix}self_attn.q_proj.weight`, [queryWidth, hiddenSize], initStd),
    matrixSpec(`${prefix}self_attn.k_proj.weight`, [keyWidth, hiddenSize], initStd),
    matrixSpec(`${prefix}self_attn.v_proj.weight`, [keyWidth, hiddenSize], initStd),
    matrixSpec(`${prefix}self_attn.o_proj.weight`, [hiddenSize, queryWidth], initStd),
    vectorSpec(`${prefix}post_attention_layernorm.weight`, hiddenSize, 'ones'),
    matrixSpec(`${prefix}mlp.gate_proj.weight`, [innerSize, hiddenSize], initStd),
    matrixSpec(`${prefix}mlp.up_proj.weight`, [innerSize, hiddenSize], initStd),
    matrixSpec(`${prefix}mlp.down_proj.weight`, [hiddenSize, innerSize], initStd),
  ];
}

/** Attention of rows x [N, C], residual not added. */
function attention(
  params: Params,
  prefix: string,
  x: Tensor,
  attend: Attention,
  { heads, keyHeads, epsilon, rope }: LlamaConfig,
): Tensor {
  const normed = rmsNorm(x, tensorOf(params, `${prefix}input_layernorm.weight`), epsilon);
  const project = (name: string): Tensor =>
    project2d(params, `${prefix}self_attn.${name}_proj.weight`, normed);
  const shape = { heads, keyHeads, rope };
  const attended = attend.rows([project('q'), project('k'), project('v')], shape);
  return project2d(params, `${prefix}self_attn.o_proj.weight`, attended);
}

/** Feed-forward part of rows x [N, C], residual not added. */
function feedForward(params: Params, prefix: string, x: Tensor, epsilon: number): Tensor {
  const normed = rmsNorm(x, tensorOf(params, `${prefix}post_attention_layernorm.weight`), epsilon);
  const gate = project2d(params, `${prefix}mlp.gate_proj.weight`, normed);
  const up = project2d(params, `${prefix}mlp.up_proj.weight`, normed);
  return project2d(params, `${prefix}mlp.down_proj.weight`, swiglu(gate, up));
}

function project2d(params: Params, name: string, x: Tensor): Tensor {
  return linear(x, tensorOf(params, name), undefined, LINEAR);
}

/**
 * @file GPT-2 as a chain of blocks: embedding, decoder layers, head with loss (Radford et al. 2019;
 * the arithmetic of transformers' GPT2LMHeadModel without dropout).
 *
 * Parameter names and layouts are those of `save_pretrained`: prefix `transformer.`, Conv1D weights
 * [in, out]. The head is tied to the token table unless the config says otherwise.
 *
 * Shapes: B batch, T sequence, C hidden, N = B*T.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import type { Block, DenseBlock, ParamSpec, Params } from './block.js';
import { matrixSpec, tensorOf, vectorSpec } from './block-params.js';
import type { Gpt2Config } from './gpt2-config.js';
import { geluNew } from './ops/gelu-new.js';
import { layerNorm } from './ops/layer-norm.js';
import { decoderLayer } from './decoder-layer.js';
import { linear } from './ops/linear.js';
import type { Attention } from './sequence-attention.js';
import { tokenEmbedding } from './token-embedding.js';
import { vocabularyHead } from './vocabulary-head.js';

const PREFIX = 'transformer.';
const CONV1D = { weight: 'in,out' } as const;

/** The blocks of a GPT-2 model: `embedding`, `h.0` …, `head`. */
export function buildGpt2(config: Gpt2Config): Block[] {
  const { vocabSize, hiddenSize, initStd, epsilon } = config;
  const tokens = matrixSpec(`${PREFIX}wte.weight`, [vocabSize, hiddenSize], initStd);
  const positions = matrixSpec(`${PREFIX}wpe.weight`, [config.positions, hiddenSize], initStd);
  const norm = [
    vectorSpec(`${PREFIX}ln_f.weight`, hiddenSize, 'ones'),
    vectorSpec(`${PREFIX}ln_f.bias`, hiddenSize, 'zeros'),
  ];
  const matrix = config.tied
    ? tokens
    : matrixSpec('lm_head.weight', [vocabSize, hiddenSize], initStd);
  return [
    tokenEmbedding({ name: 'embedding', tokens, positions }),
    ...Array.from({ length: config.layers }, (_, index) => gpt2Layer(config, index)),
    vocabularyHead({
      name: 'head',
      kind: `layerNorm(${epsilon})`,
      matrix: matrix.name,
      vocabSize,
      hiddenSize,
      owns: config.tied ? norm : [...norm, matrix],
      normUses: norm.map((spec) => spec.name),
      norm: (params, x) => normRows(params, `${PREFIX}ln_f`, x, epsilon),
    }),
  ];
}

function gpt2Layer(config: Gpt2Config, index: number): DenseBlock {
  const prefix = `${PREFIX}h.${index}.`;
  const { hiddenSize, heads, innerSize, epsilon } = config;
  const owns = layerSpecs(config, prefix);
  return decoderLayer({
    name: `h.${index}`,
    kindKey: `gpt2-layer(C=${hiddenSize},H=${heads},inner=${innerSize},eps=${epsilon})`,
    owns,
    hiddenSize,
    attention: (params, rows, attend) => attention(params, prefix, rows, attend, config),
    feedForward: (params, rows) => feedForward(params, prefix, rows, epsilon),
  });
}

/** Parameters of one layer; output projections start smaller, as GPT-2's initialisation has it. */
function layerSpecs(config: Gpt2Config, prefix: string): ParamSpec[] {
  const { hiddenSize, innerSize, initStd } = config;
  const outputStd = initStd / Math.sqrt(2 * config.layers);
  return [
    vectorSpec(`${prefix}ln_1.weight`, hiddenSize, 'ones'),
    vectorSpec(`${prefix}ln_1.bias`, hiddenSize, 'zeros'),
    matrixSpec(`${prefix}attn.c_attn.weight`, [hiddenSize, 3 * hiddenSize], initStd),
    vectorSpec(`${prefix}attn.c_attn.bias`, 3 * hiddenSize, 'zeros'),
    matrixSpec(`${prefix}attn.c_proj.weight`, [hiddenSize, hiddenSize], outputStd),
    vectorSpec(`${prefix}attn.c_proj.bias`, hiddenSize, 'zeros'),
    vectorSpec(`${prefix}ln_2.weight`, hiddenSize, 'ones'),
    vectorSpec(`${prefix}ln_2.bias`, hiddenSize, 'zeros'),
    matrixSpec(`${prefix}mlp.c_fc.weight`, [hiddenSize, innerSize], initStd),
    vectorSpec(`${prefix}mlp.c_fc.bias`, innerSize, 'zeros'),
    matrixSpec(`${prefix}mlp.c_proj.weight`, [innerSize, hiddenSize], outputStd),
    vectorSpec(`${prefix}mlp.c_proj.bias`, hiddenSize, 'zeros'),
  ];
}

/** Attention of rows x [N, C], residual not added. */
function attention(
  params: Params,
  prefix: string,
  x: Tensor,
  attend: Attention,
  { heads, epsilon }: Gpt2Config,
): Tensor {
  const normed = normRows(params, `${prefix}ln_1`, x, epsilon);
  const qkv = conv1d(params, `${prefix}attn.c_attn`, normed);
  return conv1d(params, `${prefix}attn.c_proj`, attend.joined(qkv, heads));
}

/** Feed-forward part of rows x [N, C], residual not added. */
function feedForward(params: Params, prefix: string, x: Tensor, epsilon: number): Tensor {
  const normed = normRows(params, `${prefix}ln_2`, x, epsilon);
  const inner = geluNew(conv1d(params, `${prefix}mlp.c_fc`, normed));
  return conv1d(params, `${prefix}mlp.c_proj`, inner);
}

function conv1d(params: Params, name: string, x: Tensor): Tensor {
  return linear(x, tensorOf(params, `${name}.weight`), tensorOf(params, `${name}.bias`), CONV1D);
}

function normRows(params: Params, name: string, x: Tensor, epsilon: number): Tensor {
  return layerNorm(
    x,
    tensorOf(params, `${name}.weight`),
    tensorOf(params, `${name}.bias`),
    epsilon,
  );
}

/**
 * @file The Llama-like families as a chain of blocks: embedding, decoder layers, head with loss
 * (Touvron et al. 2023, arXiv 2302.13971; the arithmetic of transformers' LlamaForCausalLM,
 * MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM and Phi3ForCausalLM).
 */
import type { Block } from './block.js';
import { matrixSpec, tensorOf, vectorSpec } from './block-params.js';
import type { LlamaConfig } from './llama-config.js';
import { llamaLayer } from './llama-layer.js';
import { rmsNorm } from './ops/rms-norm.js';
import { tokenEmbedding } from './token-embedding.js';
import { vocabularyHead } from './vocabulary-head.js';

/** The blocks of a model: `embedding`, `layers.0` …, `head`. */
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

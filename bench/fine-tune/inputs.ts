/**
 * @file What the fine-tuning benchmark reads: TinyLlama's configuration, and seeded rows of tokens.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Tokens of a row. */
export const ROW_LENGTH = 512;

/** Layers of the published model. */
export const TINYLLAMA_LAYERS = 22;

const VOCABULARY = 32_000;

/** config.json of TinyLlama 1.1B (TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T). */
export function tinyllamaConfig(layers: number) {
  return {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    hidden_size: 2048,
    intermediate_size: 5632,
    num_hidden_layers: layers,
    num_attention_heads: 32,
    num_key_value_heads: 4,
    vocab_size: VOCABULARY,
    max_position_embeddings: 2048,
    rope_theta: 10_000,
    rms_norm_eps: 1e-5,
    hidden_act: 'silu',
    initializer_range: 0.02,
    tie_word_embeddings: false,
    attention_bias: false,
    torch_dtype: 'bfloat16',
  };
}

/** Writes `rowCount` rows of pseudo-random tokens into `folder`. @returns the file */
export function writeRows(folder: string, rowCount: number): string {
  // Numerical Recipes' linear congruential generator; its high bits are the random ones.
  let state = 1;
  const token = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * VOCABULARY);
  };
  const rows = Array.from({ length: rowCount }, () => ({
    input_ids: Array.from({ length: ROW_LENGTH }, token),
  }));
  const path = join(folder, 'rows.jsonl');
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return path;
}

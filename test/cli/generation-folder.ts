/**
 * @file A random model folder with a byte-level tokenizer, for tests of commands.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '../../core/logger.js';
import { initCheckpoint } from '../../src/checkpoint/init-checkpoint.js';

const CONFIG = {
  model_type: 'llama',
  vocab_size: 260,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
  // Large, so that a random model does not repeat one token.
  initializer_range: 0.4,
};

export interface GenerationFolder {
  /** The model. */
  readonly folder: string;
  /** A path beside it. */
  path(name: string): string;
  /** Writes a JSON file into the model's folder, merged with what is there. */
  patch(name: string, values: object): void;
  remove(): void;
}

export async function makeGenerationFolder(): Promise<GenerationFolder> {
  const root = mkdtempSync(join(tmpdir(), 'spillway-generate-'));
  const configPath = join(root, 'config.json');
  writeFileSync(configPath, JSON.stringify(CONFIG));
  const folder = join(root, 'model');
  const options = { configPath, outputFolder: folder, seed: 5, logger: silentLogger };
  await initCheckpoint({ ...options, dtype: 'float32' });
  return {
    folder,
    path: (name) => join(root, name),
    patch: (name, values) => {
      const path = join(folder, name);
      const before = JSON.parse(readFileSync(path, 'utf8')) as object;
      writeFileSync(path, JSON.stringify({ ...before, ...values }));
    },
    remove: () => rmSync(root, { recursive: true, force: true }),
  };
}

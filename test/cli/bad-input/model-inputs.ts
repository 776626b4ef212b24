/**
 * @file Model folders that must be refused.
 */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { LLAMA, type BadInput, type Box, type SafetensorsHeader } from './bad-input.js';

type Row = readonly [
  name: string,
  code: BadInput['code'],
  says: RegExp,
  folder: (box: Box) => string,
  flags?: Readonly<Record<string, string>>,
];

/** The model without its weights file, and with other files. */
function withoutWeights(box: Box, files: Readonly<Record<string, string>> = {}): string {
  const folder = box.model(files);
  rmSync(join(folder, 'model.safetensors'));
  return folder;
}

const INDEX = 'model.safetensors.index.json';
const WEIGHTS = 'model.safetensors';
const WTE = 'transformer.wte.weight';

function wteOf(header: SafetensorsHeader) {
  const [name, entry] = Object.entries(header).find(([key]) => key.endsWith('wte.weight'))!;
  return { name, entry };
}

const ROWS: readonly Row[] = [
  ['a folder that is missing', 'MODEL_NOT_FOUND', /nothing/, (box) => box.path('nothing')],
  ['a file', 'MODEL_NOT_FOUND', /rows\.jsonl is no folder/, (box) => box.path('rows.jsonl')],
  ['an empty folder', 'MODEL_NOT_FOUND', /config\.json/, (box) => box.emptyFolder()],
  ['no weights', 'MODEL_NOT_FOUND', /model\.safetensors/, (box) => withoutWeights(box)],
  [
    'weights in another format only',
    'MODEL_NOT_FOUND',
    /convert them to safetensors/,
    (box) => withoutWeights(box, { 'pytorch_model.bin': 'pickle' }),
  ],
  [
    'an index that names a shard that is missing',
    'CHECKPOINT_CORRUPT',
    /model-00001-of-00002/,
    (box) =>
      withoutWeights(box, {
        [INDEX]: JSON.stringify({ weight_map: { [WTE]: 'model-00001-of-00002.safetensors' } }),
      }),
  ],
  [
    'an index that is no JSON',
    'CHECKPOINT_CORRUPT',
    /index\.json/,
    (box) => withoutWeights(box, { [INDEX]: '{"weight_map": ' }),
  ],
  [
    'an index that leads out of the folder',
    'CHECKPOINT_CORRUPT',
    /index\.json/,
    (box) =>
      withoutWeights(box, {
        [INDEX]: JSON.stringify({ weight_map: { [WTE]: '../x.safetensors' } }),
      }),
  ],
  [
    'a config.json that is no JSON',
    'MODEL_CONFIG_INVALID',
    /config\.json/,
    (box) => box.model({ 'config.json': '{"model_type": "gpt2",}' }),
  ],
  [
    'a config.json that is a list',
    'MODEL_CONFIG_INVALID',
    /config\.json/,
    (box) => box.model({ 'config.json': '[]' }),
  ],
  [
    'no model_type',
    'MODEL_CONFIG_INVALID',
    /model_type is missing/,
    (box) => box.config({ model_type: undefined }),
  ],
  [
    'an architecture that is not supported',
    'MODEL_UNSUPPORTED',
    /"mamba"; supported are .*gpt2/,
    (box) => box.config({ model_type: 'mamba' }),
  ],
  [
    'heads that do not divide the width',
    'MODEL_CONFIG_INVALID',
    /n_head/,
    (box) => box.config({ n_head: 7 }),
  ],
  [
    'a negative number of layers',
    'MODEL_CONFIG_INVALID',
    /n_layer/,
    (box) => box.config({ n_layer: -1 }),
  ],
  [
    'a width that is a text',
    'MODEL_CONFIG_INVALID',
    /n_embd/,
    (box) => box.config({ n_embd: '36' }),
  ],
  [
    'a field that is missing',
    'MODEL_CONFIG_INVALID',
    /vocab_size/,
    (box) => box.config({ vocab_size: undefined }),
  ],
  [
    'an activation that is not supported',
    'MODEL_UNSUPPORTED',
    /activation_function/,
    (box) => box.config({ activation_function: 'relu6' }),
  ],
  [
    'dropout under strict_config',
    'MODEL_UNSUPPORTED',
    /dropout/,
    (box) => box.config({ resid_pdrop: 0.1 }),
    { strict_config: 'true' },
  ],
  [
    'a rope type that is not supported',
    'MODEL_UNSUPPORTED',
    /longrope/,
    (box) => box.config({ rope_parameters: { rope_theta: 1e4, rope_type: 'longrope' } }, LLAMA),
  ],
  [
    'key-value heads that do not divide the heads',
    'MODEL_CONFIG_INVALID',
    /num_key_value_heads/,
    (box) => box.config({ num_key_value_heads: 3 }, LLAMA),
  ],
  [
    'a truncated weights file',
    'CHECKPOINT_CORRUPT',
    /model\.safetensors/,
    (box) => box.model({ [WEIGHTS]: (old) => old.subarray(0, -100) }),
  ],
  [
    'an empty weights file',
    'CHECKPOINT_CORRUPT',
    /model\.safetensors/,
    (box) => box.model({ [WEIGHTS]: '' }),
  ],
  [
    'an impossible header length',
    'CHECKPOINT_CORRUPT',
    /model\.safetensors/,
    (box) =>
      box.model({
        [WEIGHTS]: (old) => {
          old.writeBigUInt64LE(2n ** 60n, 0);
          return old;
        },
      }),
  ],
  ['a header that is a list', 'CHECKPOINT_CORRUPT', /header/, (box) => box.header(() => [])],
  [
    'tensors that overlap',
    'CHECKPOINT_CORRUPT',
    /model\.safetensors/,
    (box) =>
      box.header((header) => {
        const { entry } = wteOf(header);
        entry.data_offsets = [entry.data_offsets[0] + 4, entry.data_offsets[1] + 4];
        return header;
      }),
  ],
  [
    'an element type that nobody knows',
    'CHECKPOINT_CORRUPT',
    /F33/,
    (box) =>
      box.header((header) => {
        wteOf(header).entry.dtype = 'F33';
        return header;
      }),
  ],
  [
    'whole numbers for weights',
    'CHECKPOINT_MISMATCH',
    /I32/,
    (box) =>
      box.header((header) => {
        wteOf(header).entry.dtype = 'I32';
        return header;
      }),
  ],
  [
    'a tensor under another name',
    'CHECKPOINT_MISMATCH',
    /wte/,
    (box) =>
      box.header((header) => {
        const { name } = wteOf(header);
        const entries = Object.entries(header);
        return Object.fromEntries(
          entries.map(([key, entry]) => [key === name ? 'other.weight' : key, entry]),
        );
      }),
  ],
  [
    'weights of another size than config.json says',
    'CHECKPOINT_MISMATCH',
    /wte/,
    (box) => box.config({ vocab_size: 132 }),
  ],
];

export const MODEL_INPUTS: readonly BadInput[] = ROWS.map(([name, code, says, folder, flags]) => ({
  name: `model: ${name}`,
  code,
  says,
  args: (box) => box.train({ model_name_or_path: folder(box), ...flags }),
}));

/**
 * @file Paths that must be refused. A path below a file cannot be made, not even by root.
 */
import { join } from 'node:path';
import { TINY_MODEL } from '../end-to-end.js';
import type { BadInput, Box } from './bad-input.js';

type Row = readonly [
  name: string,
  code: BadInput['code'],
  says: RegExp,
  args: (box: Box) => string[],
];

/** A vocabulary too small for a tokenizer of bytes. */
const CONFIG = join(TINY_MODEL, 'config.json');
const INIT_CONFIG = JSON.stringify({
  model_type: 'gpt2',
  ...{ vocab_size: 300, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 },
});

const ROWS: readonly Row[] = [
  [
    'an output folder below a file',
    'PATH_UNWRITABLE',
    /\/dev\/null\/output/,
    (box) => box.train({ output_dir: '/dev/null/output' }),
  ],
  [
    'an output folder that is a file',
    'PATH_UNWRITABLE',
    /rows\.jsonl/,
    (box) => box.train({ output_dir: box.path('rows.jsonl') }),
  ],
  [
    'an NVMe folder below a file',
    'PATH_UNWRITABLE',
    /\/dev\/null\/nvme/,
    (box) => box.train({ nvme_path: '/dev/null/nvme', 'offload_param.device': 'nvme' }),
  ],
  [
    'an NVMe folder that is a file',
    'PATH_UNWRITABLE',
    /rows\.jsonl/,
    (box) => box.train({ nvme_path: box.path('rows.jsonl'), 'offload_param.device': 'nvme' }),
  ],
  [
    'init of a configuration that is missing',
    'MODEL_NOT_FOUND',
    /nothing\.json/,
    (box) => ['init', box.path('nothing.json'), box.path('new')],
  ],
  [
    'init over a folder that is not empty',
    'PATH_UNWRITABLE',
    /nothing is overwritten/,
    (box) => ['init', box.file(INIT_CONFIG), box.earlier],
  ],
  [
    'init below a file',
    'PATH_UNWRITABLE',
    /\/dev\/null/,
    (box) => ['init', box.file(INIT_CONFIG), '/dev/null/new'],
  ],
  [
    'init with too small a vocabulary',
    'MODEL_CONFIG_INVALID',
    /vocab_size/,
    (box) => ['init', CONFIG, box.path('new')],
  ],
  [
    'init with a bad seed',
    'CONFIG_INVALID',
    /seed/,
    (box) => ['init', CONFIG, box.path('new'), '--seed', '-1'],
  ],
  ['init without a folder', 'USAGE_INVALID', /OUT/, () => ['init', CONFIG]],
  ['doctor with an unknown option', 'USAGE_INVALID', /--verbose/, () => ['doctor', '--verbose']],
];

export const PATH_INPUTS: readonly BadInput[] = ROWS.map(([name, code, says, args]) => ({
  name: `path: ${name}`,
  code,
  says,
  args,
}));

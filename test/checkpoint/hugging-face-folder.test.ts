// Goal: a model folder opens with all its tensors, or is refused in one line that says what is wrong.
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { formatError, isCoded } from '../../core/errors.js';
import { HuggingFaceFolder } from '../../src/checkpoint/hugging-face-folder.js';
import { floatFile } from './safetensors-file.js';
import { openDescriptorCount, temporaryFolder } from './temporary-folder.js';

const root = temporaryFolder();
let folderCount = 0;

/** A new folder with these files; objects are written as JSON. */
function make(files: Readonly<Record<string, string | Uint8Array | object>>): string {
  const folder = join(root, String(folderCount++));
  mkdirSync(folder);
  for (const [name, content] of Object.entries(files)) {
    const raw = typeof content === 'string' || content instanceof Uint8Array;
    writeFileSync(join(folder, name), raw ? content : JSON.stringify(content));
  }
  return folder;
}

async function errorOf(folder: string): Promise<{ code: string; line: string }> {
  const error: unknown = await HuggingFaceFolder.open(folder).catch((thrown: unknown) => thrown);
  if (!isCoded(error)) throw new Error(`expected a coded error, got ${String(error)}`);
  return { code: error.code, line: formatError(error) };
}

const config = { model_type: 'gpt2' };
const shards = {
  'a.safetensors': floatFile({ x: [2], y: [3] }),
  'b.safetensors': floatFile({ z: [4] }),
};
const weightMap = { x: 'a.safetensors', y: 'a.safetensors', z: 'b.safetensors' };

function sharded(map: unknown): string {
  return make({
    'config.json': config,
    ...shards,
    'model.safetensors.index.json': { metadata: {}, weight_map: map },
  });
}

describe('opening a model folder', () => {
  it('finds one weight file, the config and the companions, with a trailing slash too', async () => {
    const folder = make({
      'config.json': config,
      'model.safetensors': floatFile({ x: [2] }),
      'tokenizer.json': {},
      'tokenizer_config.json': {},
      'special_tokens_map.json': {},
      'generation_config.json': {},
      'vocab.json': {},
      'merges.txt': '',
      'chat_template.jinja': '',
      'README.md': '',
      'metrics.jsonl': '',
      'pytorch_model.bin': '',
    });
    const opened = await HuggingFaceFolder.open(`${folder}/`);
    expect(opened.path).toBe(folder);
    expect(opened.config).toEqual(config);
    expect([...opened.tensors.keys()]).toEqual(['x']);
    expect(opened.companions).toEqual([
      'chat_template.jinja',
      'config.json',
      'generation_config.json',
      'merges.txt',
      'special_tokens_map.json',
      'tokenizer.json',
      'tokenizer_config.json',
      'vocab.json',
    ]);
    await opened.close();
  });

  it('joins the shards of an index and reads from each', async () => {
    const before = openDescriptorCount(root);
    const opened = await HuggingFaceFolder.open(sharded(weightMap));
    expect([...opened.tensors.keys()]).toEqual(['x', 'y', 'z']);
    const target = new Float32Array(2);
    for (const [name, values] of [
      ['y', [2, 3]],
      ['z', [0, 1]],
    ] as const) {
      const { file, entry } = opened.tensors.get(name)!;
      await file.readElements(entry, 0, target);
      expect([...target]).toEqual(values);
    }
    expect(openDescriptorCount(root)).toBe(before + 2);
    await opened.close();
    expect(openDescriptorCount(root)).toBe(before);
  });

  it('follows links to files elsewhere, as in the cache of the hub', async () => {
    const store = make({ blob: floatFile({ x: [1] }) });
    const folder = make({ 'config.json': config });
    symlinkSync(join(store, 'blob'), join(folder, 'model.safetensors'));
    const opened = await HuggingFaceFolder.open(folder);
    expect(opened.tensors.get('x')?.entry.shape).toEqual([1]);
    await opened.close();
  });
});

const weights = floatFile({ x: [2] });

const REFUSALS: readonly (readonly [string, () => string, string, RegExp])[] = [
  ['no folder', () => join(root, 'none'), 'MODEL_NOT_FOUND', /is no folder/],
  ['a file instead', () => join(make({ f: '' }), 'f'), 'MODEL_NOT_FOUND', /is no folder/],
  ['an empty folder', () => make({}), 'MODEL_NOT_FOUND', /no config\.json.*model\.safetensors/],
  [
    'no weights',
    () => make({ 'config.json': config }),
    'MODEL_NOT_FOUND',
    /no weights.*model\.safetensors\.index\.json/,
  ],
  [
    'pickled weights only',
    () => make({ 'config.json': config, 'pytorch_model.bin': 'x' }),
    'MODEL_NOT_FOUND',
    /convert them to safetensors.*pytorch_model\.bin/,
  ],
  [
    'a config that is no JSON',
    () => make({ 'config.json': '{"a": 1,\n}', 'model.safetensors': weights }),
    'MODEL_CONFIG_INVALID',
    /not valid JSON/,
  ],
  [
    'a config that is a list',
    () => make({ 'config.json': '[]', 'model.safetensors': weights }),
    'MODEL_CONFIG_INVALID',
    /not a JSON object/,
  ],
  [
    'a config with a key twice',
    () => make({ 'config.json': '{"n_layer":1,"n_layer":2}', 'model.safetensors': weights }),
    'MODEL_CONFIG_INVALID',
    /"n_layer" twice/,
  ],
  [
    'truncated weights',
    () => make({ 'config.json': config, 'model.safetensors': weights.subarray(0, -1) }),
    'CHECKPOINT_CORRUPT',
    /beyond the end/,
  ],
  [
    'an index that is no JSON',
    () => make({ 'config.json': config, 'model.safetensors.index.json': 'x' }),
    'CHECKPOINT_CORRUPT',
    /not valid JSON/,
  ],
  ['an index without map', () => sharded(undefined), 'CHECKPOINT_CORRUPT', /no weight_map/],
  ['an empty map', () => sharded({}), 'CHECKPOINT_CORRUPT', /no weight_map/],
  [
    'a shard that is missing',
    () => sharded({ ...weightMap, w: 'c.safetensors' }),
    'CHECKPOINT_CORRUPT',
    /"c\.safetensors", which is not there/,
  ],
  [
    'a tensor absent from every shard',
    () => sharded({ ...weightMap, w: 'a.safetensors' }),
    'CHECKPOINT_CORRUPT',
    /tensor "w" is not in its file "a\.safetensors"/,
  ],
  [
    'a tensor mapped to the wrong shard',
    () => sharded({ ...weightMap, x: 'b.safetensors' }),
    'CHECKPOINT_CORRUPT',
    /tensor "x" is not in its file "b\.safetensors"/,
  ],
  [
    'a tensor in two shards',
    () =>
      make({
        'config.json': config,
        ...shards,
        'c.safetensors': floatFile({ x: [2] }),
        'model.safetensors.index.json': { weight_map: { ...weightMap, w: 'c.safetensors' } },
      }),
    'CHECKPOINT_CORRUPT',
    /tensor "x" is in a\.safetensors as well/,
  ],
];

describe('refusing a model folder', () => {
  it.each(REFUSALS)('refuses %s', async (_, folder, code, line) => {
    const path = folder();
    const before = openDescriptorCount(root);
    const error = await errorOf(path);
    expect(error.code).toBe(code);
    expect(error.line).toMatch(line);
    expect(error.line).toContain(path);
    expect(error.line).not.toContain('\n');
    expect(openDescriptorCount(root)).toBe(before);
  });

  it.each([
    '../secret.safetensors',
    '/etc/x.safetensors',
    'sub/x.safetensors',
    '..\\x.safetensors',
    'x.safetensors\u0000',
    '..',
    'x.bin',
    '.safetensors/',
    7,
    null,
  ])('refuses an index that points to %j', async (shard) => {
    writeFileSync(join(root, 'secret.safetensors'), floatFile({ x: [2] }));
    const error = await errorOf(sharded({ x: shard }));
    expect(error.code).toBe('CHECKPOINT_CORRUPT');
    expect(error.line).toMatch(/not to a \.safetensors file of the folder/);
  });

  it('refuses or opens every mutation of an index', async () => {
    const folder = sharded(weightMap);
    const valid = Buffer.from(JSON.stringify({ weight_map: weightMap }));
    const change = fc.record({
      at: fc.nat(valid.length - 1),
      byte: fc.oneof(fc.nat(255), fc.constantFrom(...Buffer.from('"{}[]:,./\\abxyz'))),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(change, { maxLength: 3 }), async (changes) => {
        const bytes = Buffer.from(valid);
        for (const { at, byte } of changes) bytes[at] = byte;
        writeFileSync(join(folder, 'model.safetensors.index.json'), bytes);
        try {
          const opened = await HuggingFaceFolder.open(folder);
          for (const name of opened.tensors.keys()) expect(['x', 'y', 'z']).toContain(name);
        } catch (error) {
          if (!isCoded(error)) throw error;
          expect(error.code).toBe('CHECKPOINT_CORRUPT');
        }
      }),
      { numRuns: 500 },
    );
  });
});

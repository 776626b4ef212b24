// Goal: what belongs to a model goes along with it, byte for byte, and nothing else does.
import { mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { describe, expect, it } from 'vitest';

import type { Logger } from '../../core/logger.js';
import { silentLogger } from '../../core/logger.js';
import { copyCompanions, listCompanions } from '../../src/checkpoint/companions.js';
import { loadPretrained } from '../../src/checkpoint/load-pretrained.js';
import { saveModelFolder } from '../../src/checkpoint/save-model.js';
import { fixtureFolder } from '../engine/run-engine.js';
import { temporaryFolder } from './temporary-folder.js';

const root = temporaryFolder();
let folderCount = 0;

function newFolder(files: Readonly<Record<string, string>> = {}): string {
  const folder = join(root, String(folderCount++));
  mkdirSync(folder);
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), content);
  }
  return folder;
}

/** Files of a chat model besides config.json and weights, with bytes that no JSON writer makes. */
const COMPANIONS = {
  'added_tokens.json': '{ "<|im_start|>":1 }',
  'additional_chat_templates/tool_use.jinja': '{{ tools }}\n',
  'additional_chat_templates/rag.jinja': '{{ documents }}',
  'chat_template.jinja': '{% for m in messages %}…{% endfor %}\r\n',
  'chat_template.json': '{"chat_template":"x"}',
  'generation_config.json': '{"temperature": 1e-05}',
  'merges.txt': '#version: 0.2\nĠ t\n',
  'special_tokens_map.json': '{}\n\n',
  'tokenizer.json': '{"model":  {}}',
  'tokenizer.model': '\u0000\u0001\ufffd',
  'tokenizer_config.json': '{"chat_template": "{{ x }}"}',
  'vocab.json': '{"a":0}',
};

const OTHERS = {
  LICENSE: '',
  'README.md': '',
  'preprocessor_config.json': '{}',
  'pytorch_model.bin': '',
  'trainer_state.json': '{}',
  'chat_template.jinja.orig': '',
  'additional_chat_templates/notes.txt': '',
  'tokenizer_backup.json/f': '',
};

describe('listCompanions', () => {
  it('finds the files of a model and leaves out others, folders and dead links', async () => {
    const folder = newFolder({ ...COMPANIONS, ...OTHERS, 'config.json': '{}' });
    symlinkSync(join(folder, 'gone'), join(folder, 'tokenizer_old.json'));
    expect(await listCompanions(folder)).toEqual(
      [...Object.keys(COMPANIONS), 'config.json'].sort(),
    );
  });
});

describe('a saved model', () => {
  const dtypes = [
    [{ torch_dtype: 'float16' }, { torch_dtype: 'float32' }],
    [{ dtype: 'float16' }, { dtype: 'float32' }],
  ] as const;

  it.each(dtypes)('has its companions byte for byte, with %j as %j', async (given, wanted) => {
    const from = fixtureFolder('gpt2-tiny');
    const config: Record<string, unknown> = {
      ...(JSON.parse(readFileSync(join(from, 'config.json'), 'utf8')) as object),
    };
    delete config['dtype'];
    delete config['torch_dtype'];
    const source = newFolder({
      ...COMPANIONS,
      ...OTHERS,
      'config.json': JSON.stringify({ ...config, ...given }),
    });
    symlinkSync(join(from, 'model.safetensors'), join(source, 'model.safetensors'));
    const model = await loadPretrained(source);
    const output = newFolder();
    const save = async (folder: string, mode: 'replace' | 'into'): Promise<void> =>
      saveModelFolder({
        folder,
        mode,
        params: [{ name: 'w', dtype: 'F32', shape: [0], read: () => Promise.resolve() }],
        writeCompanions: (target) => model.writeCompanions(target),
      });
    await save(join(output, 'checkpoint-1'), 'replace');
    await save(output, 'into');
    await save(output, 'into');
    await model.close();
    for (const folder of [join(output, 'checkpoint-1'), output]) {
      for (const [name, content] of Object.entries(COMPANIONS)) {
        expect(readFileSync(join(folder, name)), name).toEqual(Buffer.from(content));
      }
      expect(JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'))).toEqual({
        ...config,
        ...wanted,
      });
      const names = readdirSync(folder, { recursive: true }).filter((name) =>
        Object.keys(OTHERS).includes(String(name)),
      );
      expect(names).toEqual([]);
    }
  });
});

describe('copyCompanions', () => {
  it('copies bytes, follows links, and warns of a file that has gone', async () => {
    const [source, target] = [newFolder(), newFolder()];
    writeFileSync(join(source, 'blob'), Uint8Array.of(0, 255, 13, 10));
    symlinkSync(join(source, 'blob'), join(source, 'merges.txt'));
    const warnings: string[] = [];
    const logger: Logger = { info: () => undefined, warn: (line) => void warnings.push(line) };
    await copyCompanions(source, ['merges.txt', 'vocab.json'], target, logger);
    expect([...readFileSync(join(target, 'merges.txt'))]).toEqual([0, 255, 13, 10]);
    expect(readdirSync(target)).toEqual(['merges.txt']);
    expect(warnings).toEqual([expect.stringContaining('vocab.json has gone')]);
  });

  it('fails when the target has gone', async () => {
    const source = newFolder();
    writeFileSync(join(source, 'merges.txt'), '');
    await expect(
      copyCompanions(source, ['merges.txt'], join(source, 'none'), silentLogger),
    ).rejects.toMatchObject({ code: 'ENOENT' });
  });
});

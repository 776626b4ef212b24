// Goal: every key reads the same from a file and from a flag, and every mistake is named.
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseFlags } from '../../src/config/parse-flags.js';
import { parseConfigText } from '../../src/config/read-config-file.js';
import { CONFIG_KEY_NAMES, CONFIG_KEYS } from '../../src/config/schema.js';
import { failure, fileWith, folder, load, REQUIRED } from './config-folder.js';
import { KEY_TABLE } from './key-table.js';

/** REQUIRED without `key`, so that the test gives it. */
function requiredBut(key: string): string[] {
  return REQUIRED.flatMap((item, index) =>
    index % 2 === 0 && item !== `--${key}` ? [item, REQUIRED[index + 1]!] : [],
  );
}

describe.each(CONFIG_KEY_NAMES)('%s', (key) => {
  const { text, get, value, fallback, bad, other, beside = [] } = KEY_TABLE[key];
  const rest = [...requiredBut(key), ...beside];

  it('reads the same as a flag, with dashes, with "=", from a file, dotted or nested', async () => {
    const nested = key.includes('.')
      ? `${key.split('.')[0]!}: {${key.split('.')[1]!}: ${text}}`
      : `${key}: ${text}`;
    const configs = [
      await load([...rest, `--${key}`, text]),
      await load([...rest, `--${key.replaceAll('_', '-')}`, text]),
      await load([...rest, `--${key}=${text}`]),
      await load(rest, fileWith(`${key}: ${text}`)),
      await load(rest, fileWith(`"${key.replaceAll('_', '-')}": "${text}"`)),
      await load(rest, fileWith(nested)),
    ];
    for (const config of configs) expect(get(config)).toEqual(value);
  });

  it('overrides the file as a flag', async () => {
    const plain = fallback === undefined || typeof fallback === 'object' ? '1' : String(fallback);
    const file = fileWith(`${key}: "${other ?? plain}"`);
    const config = await load([...rest, `--${key}`, text], file);
    expect(get(config)).toEqual(value);
  });

  it.runIf(fallback !== undefined)('has its default', async () => {
    expect(get(await load(REQUIRED))).toEqual(fallback);
  });

  it.runIf(bad !== undefined)('refuses a bad value by name', async () => {
    const error = await failure(() => load([...rest, `--${key}=${bad!}`]));
    expect(error.code).toMatch(/^(CONFIG_INVALID|BYTE_SIZE_INVALID)$/);
    expect(error.message).toContain(key);
    expect(error.message).toContain(bad);
  });
});

function isGroup(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

describe('a configuration', () => {
  it('has exactly the fields of the schema and is frozen', async () => {
    const config = await load(REQUIRED);
    const flat = Object.entries(config).flatMap(([name, value]) =>
      isGroup(value) ? Object.keys(value).map((inner) => `${name}.${inner}`) : [name],
    );
    const camel = (name: string) => name.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase());
    expect(flat.sort()).toEqual(CONFIG_KEY_NAMES.map(camel).sort());
    expect(Object.isFrozen(config)).toBe(true);
    expect(Object.isFrozen(config.offloadParam)).toBe(true);
    expect(Object.isFrozen(config.dataFiles)).toBe(true);
  });

  it.each(['model_name_or_path', 'data_files'])('needs %s', async (key) => {
    const error = await failure(() => load(requiredBut(key)));
    expect(error.code).toBe('CONFIG_INVALID');
    expect(error.message).toContain(`${key} is required`);
  });

  it('takes 90 % of the free space once there is a path', async () => {
    const config = await load([...REQUIRED, '--nvme_path', '/a']);
    expect(config.nvmeMemory).toBe(90 * 2 ** 30);
  });

  it('collects repeated list flags, keeps commas within YAML lists', async () => {
    const flags = await load([...REQUIRED, '--nvme_path', '/a', '--nvme-path', '/b,/c']);
    expect(flags.nvmePath).toEqual(['/a', '/b', '/c']);
    const file = await load(requiredBut('data_files'), fileWith('data_files: ["a,b", c]'));
    expect(file.dataFiles).toEqual(['a,b', 'c']);
  });

  it('takes a boolean flag without a value, also before a positional', () => {
    const parsed = parseFlags(['--strict_config', 'config.yaml']);
    expect(parsed.positionals).toEqual(['config.yaml']);
    expect([...parsed.values]).toEqual([['strict_config', true]]);
  });

  it('takes a group as JSON text, in the file and on the command line', async () => {
    const text = '{"num_cycles": 2, "min_lr_rate": 1e-1}';
    const configs = [
      await load([...REQUIRED, '--lr_scheduler_kwargs', text, '--seed', '1']),
      await load([...REQUIRED, `--lr-scheduler-kwargs=${text}`, '--seed', '1']),
      await load(REQUIRED, fileWith(`lr_scheduler_kwargs: '${text}'\nseed: 1`)),
      await load(REQUIRED, fileWith('lr_scheduler_kwargs: {num_cycles: 2, min-lr-rate: .1}')),
    ];
    for (const { lrSchedulerKwargs } of configs) {
      expect(lrSchedulerKwargs).toMatchObject({ numCycles: 2, minLrRate: 0.1 });
    }
  });

  it('leaves a group given as null at its defaults', async () => {
    const config = await load(REQUIRED, fileWith('offload_param:\nlr_scheduler_kwargs: ~'));
    expect(config.offloadParam).toEqual({ device: 'auto' });
  });

  it('takes --model for --model_name_or_path, once', async () => {
    expect([...parseFlags(['--model', 'folder']).values]).toEqual([
      ['model_name_or_path', 'folder'],
    ]);
    const twice = await failure(() => parseFlags(['--model=a', '--model_name_or_path=b']));
    expect(twice.message).toContain('model_name_or_path is given twice');
  });

  it('takes truth values of flags in Python’s spelling too', () => {
    const args = ['--packing', 'True', '--bf16=False', '--save_safetensors', 'True', '--seed', '1'];
    const { values, positionals } = parseFlags(args);
    expect([...values]).toEqual([
      ['packing', 'true'],
      ['bf16', 'false'],
      ['save_safetensors', 'true'],
      ['seed', '1'],
    ]);
    expect(positionals).toEqual([]);
  });

  it('takes false as no checkpoint to resume from, true as the newest', async () => {
    const resume = async (text: string) =>
      (await load(REQUIRED, fileWith(`resume_from_checkpoint: ${text}`))).resumeFromCheckpoint;
    expect(await resume('true')).toBe('true');
    expect(await resume('True')).toBe('true');
    expect(await resume('False')).toBeUndefined();
    expect(await resume('false')).toBeUndefined();
  });

  it('takes negative numbers, null as not given, and reads JSON', async () => {
    expect((await load([...REQUIRED, '--max_steps', '-1'])).maxSteps).toBe(-1);
    expect((await load(REQUIRED, fileWith('max_length:\nseed: ~'))).maxLength).toBe(1024);
    expect((await load(REQUIRED, fileWith('{"max_length": 64}'))).maxLength).toBe(64);
    expect((await load(REQUIRED, fileWith('# nothing'))).maxLength).toBe(1024);
  });
});

describe('a mistake', () => {
  it.each([
    ['max_lenght: 5', 'max_lenght', 'max_length'],
    ['batch_size: 5', 'batch_size', 'per_device_train_batch_size'],
    ['offload_param: {devise: cpu}', 'offload_param.devise', 'offload_param.device'],
    ['ofload_param: {device: cpu}', 'ofload_param', 'offload_param.device'],
    ['learningrate: 1', 'learningrate', 'learning_rate'],
  ])('%s is an unknown key that names the nearest', async (text, key, nearest) => {
    const error = await failure(() => parseConfigText(text, 'c.yaml'));
    expect(error.code).toBe('CONFIG_UNKNOWN_KEY');
    expect(error.facts).toEqual({ key, nearest });
    expect(error.message).toContain('c.yaml');
  });

  it('of a flag is named the same way', async () => {
    const error = await failure(() => parseFlags(['--max-step', '5']));
    expect(error.code).toBe('CONFIG_UNKNOWN_KEY');
    expect(error.facts).toEqual({ key: 'max-step', nearest: 'max_steps' });
    expect((await failure(() => parseFlags(['-x']))).code).toBe('CONFIG_UNKNOWN_KEY');
  });

  it.each([
    ['seed: 1\nseed: 2', 'unique'],
    ['max_length: 1\nmax-length: 2', 'max_length is given twice'],
    ['offload_param: {device: cpu}\noffload_param.device: cpu', 'given twice'],
    ['- seed', 'not a map'],
    ['seed: [1', 'YAML'],
    ['seed: 1\n\tb: 2', 'YAML'],
    ['seed: *nothing', 'YAML'],
    ['offload_param: cpu', 'offload_param'],
    ['seed: {a: 1}', 'a map'],
    ['__proto__: {seed: 1}', '__proto__'],
  ])('%j is one line that says what is wrong', async (text, fragment) => {
    const error = await failure(() => load(REQUIRED, fileWith(text)));
    expect(error.code).toMatch(/^CONFIG_(INVALID|UNKNOWN_KEY)$/);
    expect(error.message).toContain(fragment);
    expect(error.message).not.toContain('\n');
  });

  it.each([
    ['{"min_lr": 1', 'JSON'],
    ['[1]', 'not a JSON object'],
    ['0.1', 'not a JSON object'],
    ['{"power": 1, "power": 2}', '"power" twice'],
    ['{"pover": 1}', 'lr_scheduler_kwargs.power'],
    ['{"power": {"a": 1}}', 'lr_scheduler_kwargs.power'],
  ])('%s as lr_scheduler_kwargs is one line that says what is wrong', async (text, fragment) => {
    const error = await failure(() => load([...REQUIRED, '--lr_scheduler_kwargs', text]));
    expect(error.code).toMatch(/^CONFIG_(INVALID|UNKNOWN_KEY)$/);
    expect(error.message).toContain(fragment);
    expect(error.message).not.toContain('\n');
  });

  it('of a command with its own keys names those', async () => {
    const keys = { seed: CONFIG_KEYS.seed };
    expect([...parseFlags(['x', '--seed=1'], keys).values]).toEqual([['seed', '1']]);
    const error = await failure(() => parseFlags(['--max_steps', '1'], keys));
    expect(error.facts).toEqual({ key: 'max_steps', nearest: 'seed' });
  });

  it('is a flag without a value or given twice', async () => {
    expect((await failure(() => parseFlags(['--seed']))).message).toContain('--seed needs a value');
    expect((await failure(() => parseFlags(['--seed', '--max_steps', '1']))).code).toBe(
      'CONFIG_INVALID',
    );
    const twice = await failure(() => parseFlags(['--seed', '1', '--seed=2']));
    expect(twice.message).toContain('seed is given twice');
  });

  it('is a missing file, a folder or a huge file', async () => {
    expect((await failure(() => load(REQUIRED, join(folder, 'none.yaml')))).code).toBe(
      'CONFIG_NOT_FOUND',
    );
    expect((await failure(() => load(REQUIRED, folder))).code).toBe('CONFIG_NOT_FOUND');
    const huge = await failure(() => load(REQUIRED, fileWith(' '.repeat(2 ** 20 + 1))));
    expect(huge.code).toBe('CONFIG_INVALID');
  });

  it('in the file is an error even when a flag overrides it', async () => {
    const error = await failure(() => load([...REQUIRED, '--seed', '1'], fileWith('seed: x')));
    expect(error.code).toBe('CONFIG_INVALID');
  });
});

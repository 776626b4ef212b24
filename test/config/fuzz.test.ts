// Goal: whatever stands in a configuration, it loads or fails by a code, in one line and in time.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { SpillwayError, formatError } from '../../core/errors.js';
import { silentLogger } from '../../core/logger.js';
import { DsMerge } from '../../src/config/deepspeed/ds-merge.js';
import { mapBatchSize } from '../../src/config/deepspeed/map-batch-size.js';
import { mapOffload } from '../../src/config/deepspeed/map-offload.js';
import { mapOptimizer } from '../../src/config/deepspeed/map-optimizer.js';
import { scanDsConfig } from '../../src/config/deepspeed/scan-ds-config.js';
import { loadConfig } from '../../src/config/load-config.js';
import { parseFlags } from '../../src/config/parse-flags.js';
import { parseJsonObject } from '../../src/config/parse-json-object.js';
import { parseConfigText } from '../../src/config/read-config-file.js';
import { CONFIG_KEYS } from '../../src/config/schema.js';
import { typeValues } from '../../src/config/type-values.js';
import { fileWith, REQUIRED } from './config-folder.js';

const YAML = `model_name_or_path: models/m # where
data_files: ["a.jsonl", 'b,c.jsonl']
learning_rate: 2e-5
lr_scheduler_kwargs: {num_cycles: 2}
offload_param:
  device: cpu
nvme_path:
  - /disk0
  - &second /disk1
host_memory: 8GiB
packing: true
token_cache: |
  none
`;

const DS = JSON.stringify({
  bf16: { enabled: 'auto' },
  train_batch_size: 8,
  train_micro_batch_size_per_gpu: 2,
  optimizer: { type: 'AdamW', params: { lr: 1e-4, betas: [0.9, 0.95], eps: 'auto' } },
  scheduler: { type: 'WarmupLR', params: { warmup_num_steps: 5, warmup_type: 'linear' } },
  zero_optimization: {
    stage: 3,
    sub_group_size: 1e9,
    offload_param: { device: 'nvme', nvme_path: '/disk0', max_in_cpu: 1e9 },
  },
});

/** Pieces that mean something to YAML or JSON. */
const PIECES = [
  '{',
  '}',
  '[',
  ']',
  ':',
  ',',
  '"',
  "'",
  '&a ',
  '*a',
  '- ',
  '\n',
  '\t',
  '!!map ',
  '? ',
]
  .concat(['|', '>', '#', '%', '---', '<<: ', 'null', 'true', '-1', '1e999', '__proto__', '\u0000'])
  .concat(['\uD800', '\uFEFF', '9'.repeat(400)]);

/** `text` with some spans replaced by pieces, random texts or parts of itself. */
function mutated(text: string): fc.Arbitrary<string> {
  const place = fc.nat(text.length);
  const insert = fc.oneof(
    fc.constantFrom(...PIECES),
    fc.string({ maxLength: 4 }),
    fc.tuple(place, fc.nat(20)).map(([from, length]) => text.slice(from, from + length)),
  );
  const edit = fc.tuple(place, fc.nat(8), insert);
  return fc
    .array(edit, { minLength: 1, maxLength: 4 })
    .map((edits) =>
      edits.reduce(
        (now, [from, length, piece]) => now.slice(0, from) + piece + now.slice(from + length),
        text,
      ),
    );
}

/** Runs `action`; anything but success or a coded, one-line error fails. */
function holds(action: () => unknown): void {
  try {
    action();
  } catch (error) {
    if (!(error instanceof SpillwayError)) throw error;
    expect(error.code).toMatch(/^(CONFIG_|BYTE_SIZE_)/);
    const line = formatError(error);
    expect(line).not.toContain('\n');
    expect(line.length).toBeLessThan(2000);
  }
}

const none = () => new Map<string, unknown>();

it('mutated YAML loads or fails by a code', () => {
  fc.assert(
    fc.property(mutated(YAML), (text) => {
      holds(() => typeValues(CONFIG_KEYS, parseConfigText(text, 'c.yaml'), none()));
    }),
    { numRuns: 400 },
  );
});

it('mutated DeepSpeed configurations are mapped or fail by a code', () => {
  const values = typeValues(CONFIG_KEYS, none(), none());
  fc.assert(
    fc.property(mutated(DS), (text) => {
      holds(() => {
        const scan = scanDsConfig(parseJsonObject(text, 'ds.json'), 'ds.json');
        const merge = new DsMerge('ds.json', values, () => undefined);
        mapBatchSize(scan, merge);
        mapOptimizer(scan, merge);
        mapOffload(scan, merge);
      });
    }),
    { numRuns: 2500 },
  );
});

it('DeepSpeed values of any kind are mapped or fail by a code', () => {
  const values = typeValues(CONFIG_KEYS, none(), none());
  const swap = fc.tuple(fc.nat(40), fc.jsonValue({ maxDepth: 2 }));
  fc.assert(
    fc.property(swap, ([target, value]) => {
      let count = 0;
      const root = JSON.parse(DS, (_, old: unknown) =>
        count++ === target ? value : old,
      ) as unknown;
      holds(() => {
        const scan = scanDsConfig(parseJsonObject(JSON.stringify(root), 'ds.json'), 'ds.json');
        const merge = new DsMerge('ds.json', values, () => undefined);
        mapBatchSize(scan, merge);
        mapOptimizer(scan, merge);
        mapOffload(scan, merge);
      });
    }),
    { numRuns: 1500 },
  );
});

it('random arguments are parsed or fail by a code', () => {
  const name = fc.constantFrom('seed', 'data_files', 'packing', 'lr_scheduler_kwargs', 'x', '');
  const value = fc.oneof(fc.constantFrom('1', '{"power": 2}', '-1', '--', '-', ''), fc.string());
  const arg = fc.oneof(
    name.map((text) => `--${text}`),
    fc.tuple(name, value).map(([text, given]) => `--${text}=${given}`),
    value,
  );
  fc.assert(
    fc.property(fc.array(arg, { maxLength: 6 }), (args) => {
      holds(() => typeValues(CONFIG_KEYS, none(), parseFlags(args).values));
    }),
    { numRuns: 1500 },
  );
});

it.each([
  ['flow lists', `seed: ${'['.repeat(400_000)}`],
  ['flow maps', `seed: ${'{a: '.repeat(200_000)}`],
  ['block lists', '- '.repeat(500_000)],
  ['explicit keys', '? '.repeat(500_000)],
  ['indented maps', Array.from({ length: 1400 }, (_, i) => `${' '.repeat(i)}a:`).join('\n')],
])('%s nested without end are refused before they are composed', (_, text) => {
  expect(() => parseConfigText(text, 'c.yaml')).toThrow(/nests deeper/);
});

it.each(['{"a":', '['])('JSON that begins with %s without end is refused', async (open) => {
  const path = fileWith(`{"compression_training": ${open.repeat(150_000)}`);
  const flags = parseFlags([...REQUIRED, '--deepspeed', path]).values;
  await expect(loadConfig({ flags, logger: silentLogger })).rejects.toThrow(/nested too deeply/);
});

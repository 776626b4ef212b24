/**
 * @file docs/CONFIG.md, generated from the schema, and the same as help text.
 */
import type { ConfigKey, KeyTable } from './config-key.js';
import { renderDeepSpeedSection } from './deepspeed/ds-docs.js';
import { FIXED_KEYS, IDLE_KEYS } from './keys/standing-keys.js';
import { CONFIG_KEY_NAMES, CONFIG_KEYS } from './schema.js';

/** Default of a key as people would write it. */
function defaultText(key: ConfigKey<unknown>): string {
  return key.fallbackText === '' ? String(key.fallback) : key.fallbackText;
}

/** The whole page, ending in a newline. */
export function renderConfigPage(): string {
  const rows = CONFIG_KEY_NAMES.map((name) => {
    const key: ConfigKey<unknown> = CONFIG_KEYS[name];
    const cells = [`\`${name}\``, key.type, defaultText(key), key.meaning, key.source];
    return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  });
  return `${PAGE_HEAD}\n${rows.join('\n')}\n${STANDING_HEAD}\n${standingRows().join('\n')}\n${renderDeepSpeedSection()}`;
}

function standingRows(): string[] {
  const keys: [string, ConfigKey<unknown>][] = Object.entries({ ...FIXED_KEYS, ...IDLE_KEYS });
  return keys.map(([name, key]) => {
    const allowed = Object.hasOwn(FIXED_KEYS, name) ? key.type : 'any';
    return `| \`${name}\` | ${allowed} | ${key.meaning} |`;
  });
}

const PAGE_HEAD = `<!-- Generated from src/config/schema.ts by scripts/generate-config-docs.mjs; do not edit. -->

# Configuration

\`spillway train [CONFIG.yaml] [--key value …]\` reads keys from a YAML or JSON file and from flags;
flags override the file. \`spillway plan\`, \`tune\` and \`evaluate\` take the same file and keys and need
fewer of them: \`plan\` the model, \`evaluate\` model and rows, \`tune\` none. The flags of
\`spillway generate\` are in its \`--help\`.

- \`-\` and \`_\` are the same: \`--max-length 512\`, \`--max_length 512\`, \`max-length: 512\`.
- A dot stands for nesting: \`offload_param: {device: cpu}\`, \`offload_param.device: cpu\` and
  \`--offload_param.device cpu\` mean the same, and so does one JSON text:
  \`--lr_scheduler_kwargs '{"min_lr": 1e-6}'\`.
- Lists are a YAML list, one text with commas, or a repeated flag.
- \`--strict_config\` and \`--strict_config true\` mean the same.
- Byte sizes: \`KiB\`, \`MiB\`, \`GiB\`, \`TiB\` are powers of 1024; \`kB\`, \`MB\`, \`GB\`, \`TB\` powers of
  1000; a bare number is bytes.
- Available memory honours container limits (cgroup v1 and v2).
- A key given as null is a key not given. An unknown key is an error that names the nearest one; for
  keys of TrainingArguments, SFTConfig and Axolotl it names the key that does the same here.

| key | allowed | default | meaning | named after |
| --- | --- | --- | --- | --- |`;

const STANDING_HEAD = `
## Keys that decide nothing

Configurations for Hugging Face's Trainer and TRL often have these. They are accepted with the values
below, because they describe what Spillway does anyway or change no result here; a note names those
given with \`any\` value. Another value is refused.

| key | allowed | what Spillway does |
| --- | --- | --- |`;

/** One entry per key for `--help`. */
export function renderConfigHelp(keys: KeyTable = CONFIG_KEYS): string {
  const lines = Object.entries(keys).map(([name, key]) => {
    const meaning = `${key.meaning.replaceAll('`', '')} (default: ${defaultText(key)})`;
    return `  --${name} <${key.type}>\n      ${meaning}`;
  });
  return lines.join('\n');
}

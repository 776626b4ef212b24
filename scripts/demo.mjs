/**
 * The demo: fine-tunes a model whose training state is more than three times the memory that it is
 * given, on real text of this machine, and checks what it claims.
 *
 * 1. `spillway init` makes a seeded GPT-2 checkpoint with a byte-level vocabulary.
 * 2. The declaration files of the installed TypeScript become JSONL rows.
 * 3. `spillway train` fine-tunes it under the budgets below; what does not fit goes to files.
 * 4. The loss, the bytes moved and each tier's peak beside its budget are printed and checked.
 *
 * Everything lies in ./demo_output, which is replaced. Exits 1 when a check fails. Needs `npm ci`.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const cli = join(root, 'dist/src/cli/main.js');
const output = join(root, 'demo_output');
const shown = (path) => relative(process.cwd(), path) || '.';

const MIB = 2 ** 20;
const { native } = await import(new URL('dist/tiers/native/binding.js', `file://${root}/`).href);

/** With the C++ addon: 25 M parameters, computed by the native device. */
const LARGE = {
  model: { n_positions: 128, n_embd: 512, n_layer: 8, n_head: 8 },
  budget: { device: 48 * MIB, host: 48 * MIB, nvme: 512 * MIB },
  training: {
    max_steps: 40,
    per_device_train_batch_size: 4,
    learning_rate: 1e-3,
    warmup_steps: 4,
    logging_steps: 4,
    sub_group_size: 1_048_576,
  },
};

/** Without it: ten narrow layers, since the plain JavaScript device computes some 0.5 GFLOP/s. */
const SMALL = {
  model: { n_positions: 32, n_embd: 128, n_layer: 10, n_head: 4 },
  budget: { device: 3 * MIB, host: 6 * MIB, nvme: 64 * MIB },
  training: {
    max_steps: 24,
    per_device_train_batch_size: 2,
    learning_rate: 2e-3,
    warmup_steps: 3,
    logging_steps: 3,
    // Small shards: the optimizer's tiles, one shard at a time on each of two workers, stay small.
    sub_group_size: 65_536,
  },
};

const size = native() === undefined ? SMALL : LARGE;
const MODEL = { model_type: 'gpt2', vocab_size: 260, ...size.model };
const BUDGET = size.budget;
/** Training state (16 bytes per parameter) over device + host budget must exceed this. */
const LEAST_STATE_RATIO = 3;
/** The mean loss of the last logged steps must be lower than the first by this, in nats. */
const LEAST_LOSS_FALL = 1;
const ROW_COUNT = 512;
/** Bytes of a row; with the end-of-text token they are n_positions tokens. */
const ROW_BYTES = MODEL.n_positions - 1;
const TRAINING = {
  ...size.training,
  // A few dozen steps are over before a slow second moment has settled.
  adam_beta2: 0.95,
  weight_decay: 0.01,
  save_strategy: 'no',
};

/** The files whose text is learned. */
function textFiles() {
  try {
    const require = createRequire(import.meta.url);
    const folder = join(dirname(require.resolve('typescript/package.json')), 'lib');
    const names = readdirSync(folder).filter((name) => /^lib\..*\.d\.ts$/.test(name));
    if (names.length > 0) return names.sort().map((name) => join(folder, name));
  } catch {
    // Installed without development dependencies.
  }
  console.log("note: TypeScript is not installed, so the project's own documents are the text");
  const pages = readdirSync(join(root, 'docs')).map((name) => join(root, 'docs', name));
  return [...pages, join(root, 'README.md')].filter((path) => path.endsWith('.md'));
}

/** `ROW_COUNT` rows of ASCII text from starts of lines, spread evenly over all files. */
function makeRows() {
  const text = textFiles()
    .map((path) => readFileSync(path, 'utf8'))
    .join('\n')
    .replaceAll(/[^\n\x20-\x7e]/g, '');
  const stride = Math.max(ROW_BYTES, Math.floor(text.length / ROW_COUNT));
  const rows = [];
  for (let at = 0; at + stride <= text.length; at += stride) {
    const start = text.indexOf('\n', at) + 1;
    rows.push(text.slice(start, start + ROW_BYTES));
  }
  return rows;
}

/** Runs the executable with our standard streams; ends the demo when it fails. */
function spillway(...args) {
  const short = args.map((arg) => (arg.startsWith(output) ? shown(arg) : arg)).join(' ');
  console.log(`\n$ spillway ${short}`);
  const { status, error } = spawnSync(process.execPath, [cli, ...args], { stdio: 'inherit' });
  if (status === 0) return;
  console.error(`demo: spillway ${args[0]} failed (${error?.message ?? `status ${status}`})`);
  process.exit(1);
}

function mib(bytes) {
  return `${(bytes / MIB).toFixed(2)} MiB`;
}

/** Prints a check; remembers whether one failed. */
function check(holds, sentence) {
  console.log(`${holds ? 'ok  ' : 'FAIL'}  ${sentence}`);
  if (!holds) process.exitCode = 1;
}

function report(model, result, parameterCount) {
  const read = (path) => readFileSync(join(result, path), 'utf8');
  const records = read('metrics.jsonl').trimEnd().split('\n').map(JSON.parse);
  const summary = JSON.parse(read('summary.json'));
  const { peak_bytes: peak, budget_bytes: budget, bytes_moved: moved } = summary;
  const stateBytes = parameterCount * 16;

  console.log(`\nloss, mean of ${TRAINING.logging_steps} steps`);
  const scale = 40 / records[0].loss;
  for (const { step, loss } of records) {
    const bar = '#'.repeat(Math.max(0, Math.round(loss * scale)));
    console.log(`  step ${String(step).padStart(3)}  ${loss.toFixed(3)}  ${bar}`);
  }
  console.log('\ntier          peak        budget');
  for (const tier of ['device', 'host', 'nvme']) {
    console.log(
      `  ${tier.padEnd(6)}  ${mib(peak[tier]).padStart(9)}  ${mib(budget[tier]).padStart(12)}`,
    );
  }
  console.log('\nlink          moved');
  for (const [link, bytes] of Object.entries(moved)) {
    console.log(`  ${link.padEnd(10)}  ${mib(bytes).padStart(11)}`);
  }
  console.log('');

  const fast = budget.device + budget.host;
  const [first, last] = [records[0].loss, records.at(-1).loss];
  const ratio = stateBytes / fast;
  check(
    ratio > LEAST_STATE_RATIO,
    `training state ${mib(stateBytes)} is ${ratio.toFixed(2)} times device + host (${mib(fast)})`,
  );
  for (const tier of ['device', 'host', 'nvme']) {
    check(peak[tier] > 0 && peak[tier] <= budget[tier], `${tier} stayed within its budget`);
  }
  check(moved.nvme_read > 0 && moved.nvme_write > 0, 'state travelled to the NVMe files and back');
  check(
    first - last >= LEAST_LOSS_FALL,
    `loss fell from ${first.toFixed(3)} to ${last.toFixed(3)}`,
  );
  check(
    existsSync(join(result, 'model.safetensors')) &&
      !readFileSync(join(result, 'model.safetensors')).equals(
        readFileSync(join(model, 'model.safetensors')),
      ),
    `${shown(result)} holds the fine-tuned model in Hugging Face format`,
  );
}

/** Parameters of the checkpoint, counted from its safetensors header. */
function countParameters(model) {
  const file = readFileSync(join(model, 'model.safetensors'));
  const header = JSON.parse(file.subarray(8, 8 + Number(file.readBigUInt64LE(0))).toString());
  return Object.values(header)
    .flatMap((entry) => (entry.shape === undefined ? [] : [entry.shape]))
    .reduce((sum, shape) => sum + shape.reduce((product, size) => product * size, 1), 0);
}

function main() {
  if (!existsSync(cli)) {
    console.error('demo: dist/ is missing; run "npm ci" (or "npm run build") first');
    process.exit(1);
  }
  const started = performance.now();
  rmSync(output, { recursive: true, force: true });
  mkdirSync(output);
  const model = join(output, 'model');
  const data = join(output, 'train.jsonl');
  const result = join(output, 'trained');
  writeFileSync(join(output, 'config.json'), JSON.stringify(MODEL, null, 2));
  const rows = makeRows();
  writeFileSync(data, rows.map((text) => `${JSON.stringify({ text })}\n`).join(''));

  spillway('init', join(output, 'config.json'), model, '--seed', '1');
  const flags = {
    model_name_or_path: model,
    data_files: data,
    output_dir: result,
    nvme_path: join(output, 'nvme'),
    device_memory: BUDGET.device,
    host_memory: BUDGET.host,
    nvme_memory: BUDGET.nvme,
    ...TRAINING,
  };
  spillway('train', ...Object.entries(flags).flatMap(([key, value]) => [`--${key}`, `${value}`]));
  report(model, result, countParameters(model));
  console.log(`\n${((performance.now() - started) / 1000).toFixed(0)} s in all`);
}

main();

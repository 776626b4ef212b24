// Goal: README's first steps work when they are pasted, and print what is shown there.
import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { blocksOf, firstForeignLine, type CodeBlock } from './markdown-blocks.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const blocks = blocksOf(readFileSync(join(root, 'README.md'), 'utf8'), 'First steps');
const commands = blocks.filter(({ language, note }) => language === 'sh' && note === '');

/** A clone as `npm ci` leaves it. */
const clone = mkdtempSync(join(tmpdir(), 'spillway-readme-'));
for (const name of ['dist', 'node_modules', 'package.json', 'scripts']) {
  symlinkSync(join(root, name), join(clone, name));
}
afterAll(() => {
  rmSync(clone, { recursive: true });
});

const readJson = (path: string): unknown => JSON.parse(readFileSync(join(clone, path), 'utf8'));

interface Result {
  readonly block: CodeBlock;
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Pastes a block into a shell of its own. */
function paste(block: CodeBlock): Promise<Result> {
  return new Promise((resolve) => {
    execFile('bash', ['-e', '-c', block.text], { cwd: clone }, (error, stdout, stderr) => {
      const status = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
      resolve({ block, status, stdout, stderr });
    });
  });
}

const results: Result[] = [];
beforeAll(async () => {
  for (const block of commands) {
    const result = await paste(block);
    results.push(result);
    if (result.status !== 0) break; // What follows builds on it.
  }
});

/** The result of the one block that runs `words`. */
function resultOf(words: string): Result {
  const found = results.filter(({ block }) => block.text.includes(words));
  expect(found).toHaveLength(1);
  return found[0]!;
}

it('installs by the command that CI runs', () => {
  const setup = blocks.filter(({ note }) => note === 'setup');
  expect(setup).toHaveLength(1);
  const lines = setup[0]!.text.split('\n').map((line) => line.replace(/ *#.*/, ''));
  expect(lines).toContain('npm ci');
  expect(readFileSync(join(root, '.ci/run'), 'utf8')).toMatch(/^npm ci( |$)/m);
  expect(commands.some(({ text }) => text.includes('npm ci'))).toBe(false);
});

it('needs no network but for a download that is optional', () => {
  const others = blocks.filter(({ language, note }) => language === 'sh' && note !== '');
  expect(others.map(({ note }) => note)).toEqual(['setup', 'network']);
  expect(others[1]!.text).toContain('hf download');
});

it('every command succeeds, and only generate has something to note', () => {
  expect(results.filter(({ status }) => status !== 0)).toEqual([]);
  expect(results).toHaveLength(commands.length);
  // Where the kernel or its container offers no io_uring, a line says so.
  const noting = results.filter(
    ({ stderr }) => stderr.replaceAll(/^warning: NVMe files go through .*\n/gm, '') !== '',
  );
  expect(noting.map(({ block }) => /-- (\w+)/.exec(block.text)?.[1])).toEqual(['generate']);
});

describe('what is shown', () => {
  const shown = blocks.flatMap((block, index) =>
    block.language === 'text' ? [[blocks[index - 1]!, block.text] as const] : [],
  );

  it('is shown of plan, train, report, evaluate and generate', () => {
    expect(shown.map(([{ text }]) => /-- (\w+)/.exec(text)?.[1])).toEqual([
      'plan',
      'train',
      'train', // And then report.
      'evaluate',
      'generate',
    ]);
  });

  it('would be missed if it were not printed', () => {
    const printed = 'a 1.5 MiB\nb 2\nc 3\n';
    expect(firstForeignLine('a 9 KiB\nb 7\n…\n', printed)).toBeUndefined();
    expect(firstForeignLine('…\nc 3\n', printed)).toBeUndefined();
    expect(firstForeignLine('a 9 KiB\nc 3\n', printed)).toBe('c 3');
    expect(firstForeignLine('…\nb: 2\n', printed)).toBe('b: 2');
    expect(firstForeignLine('a 9\n', printed)).toBe('a 9');
  });

  it.each(shown)('is printed: $text', ({ text: command }, text) => {
    expect(firstForeignLine(text, resultOf(command).stdout)).toBeUndefined();
  });
});

describe('what is made', () => {
  const weightsOf = (path: string): Buffer => readFileSync(join(clone, path));

  it('doctor reports on this machine', () => {
    expect(resultOf('-- doctor').stdout).toMatch(/^spillway \d+\.\d+\.\d+\n(ok|--) /);
  });

  it('init makes a model folder with as many parameters as plan counts', () => {
    expect(readdirSync(join(clone, 'try/model')).sort()).toEqual([
      'config.json',
      'generation_config.json',
      'model.safetensors',
      'tokenizer.json',
      'tokenizer_config.json',
    ]);
    // Table and head 260 x 128; per layer q, k, v, o, the MLP and two norms; the last norm.
    const layer = 128 * (128 + 64 + 64 + 128) + 3 * 128 * 384 + 2 * 128;
    const count = 2 * 260 * 128 + 2 * layer + 128;
    expect(resultOf('-- init').stdout).toContain(`${count} parameters`);
    expect(resultOf('-- plan').stdout).toContain(`${count.toLocaleString('en-US')} parameters`);
  });

  it('training learns, within its budgets and with files in use', () => {
    const { stdout } = resultOf('-- train try/train.yaml\n');
    const losses = [...stdout.matchAll(/^step \d+\/60 {2}loss ([\d.]+)/gm)].map(([, loss]) =>
      Number(loss),
    );
    expect(losses).toHaveLength(3);
    expect(losses[2]).toBeLessThan(losses[0]! / 10);
    const moved = /^nvme_write +([\d.]+) MiB/m.exec(stdout);
    expect(Number(moved?.[1])).toBeGreaterThan(100);
  });

  it('resuming goes on from the checkpoint that was left, and ends with the same bytes', () => {
    const { stdout } = resultOf('--resume_from_checkpoint');
    expect(stdout).toContain('resuming after step 30\n');
    const weights = weightsOf('try/trained/model.safetensors');
    expect(weights.equals(weightsOf('try/uninterrupted.safetensors'))).toBe(true);
    const summary = readJson('try/trained/summary.json') as {
      global_step: number;
      peak_bytes: { host: number };
    };
    expect(summary.global_step).toBe(60);
    // The other budget was used.
    expect(summary.peak_bytes.host).toBeGreaterThan(10 * 2 ** 20);
    expect(readdirSync(join(clone, 'try/trained')).sort()).toEqual([
      'checkpoint-30',
      'checkpoint-60',
      'config.json',
      'generation_config.json',
      'metrics.jsonl',
      'model.safetensors',
      'summary.json',
      'tokenizer.json',
      'tokenizer_config.json',
    ]);
  });

  it('a traced run has a trace that is JSON, and a page that shows a step of it', () => {
    expect(readJson('try/traced/trace.json')).toHaveProperty('traceEvents');
    const page = readFileSync(join(clone, 'try/traced/report.html'), 'utf8');
    expect(page).toContain('<svg');
    expect(resultOf('-- report').stdout).toContain('model saved in try/traced\n');
  });

  it('evaluating finds the loss that the run had found', () => {
    const { eval_loss: loss } = readJson('try/trained/summary.json') as { eval_loss: number };
    expect(resultOf('-- evaluate').stdout).toContain(
      `loss ${loss.toFixed(4)}, perplexity ${Math.exp(loss).toFixed(4)}\n`,
    );
  });

  it('the model continues as it was taught', () => {
    expect(resultOf('-- generate').stdout).toBe(' five\n');
  });
});

const python = process.env['SPILLWAY_PYTHON'] ?? 'python3';
const findSpecs =
  'from importlib.util import find_spec as f; exit(not (f("torch") and f("transformers")))';
const findsTorch = spawnSync(python, ['-c', findSpecs]).status === 0;

it('transformers loads the model and continues likewise', ({ skip }) => {
  const scripts = blocks.filter(({ language }) => language === 'python');
  expect(scripts).toHaveLength(1);
  skip(!findsTorch, 'skipped: no torch');
  const env = { ...process.env, HF_HUB_OFFLINE: '1', TRANSFORMERS_OFFLINE: '1' };
  const options = { cwd: clone, env, encoding: 'utf8', stdio: 'pipe' } as const;
  const printed = execFileSync(python, ['-c', scripts[0]!.text], options);
  expect(printed).toBe(`two three four${resultOf('-- generate').stdout}`);
  expect(scripts[0]!.text).toContain(`# ${printed.trim()}\n`);
});

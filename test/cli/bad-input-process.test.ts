// Goal: through the built executable, refusals and signals end the process as the table says.
import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ERROR_EXIT_STATUS } from '../../core/errors.js';
import { Box, ROWS } from './bad-input/bad-input.js';
import { CONFIG_INPUTS } from './bad-input/config-inputs.js';
import { DATA_INPUTS } from './bad-input/data-inputs.js';
import { MODEL_INPUTS } from './bad-input/model-inputs.js';
import { PATH_INPUTS } from './bad-input/path-inputs.js';
import { EXECUTABLE, runProcess, snapshot, writeJsonl, type Outcome } from './end-to-end.js';

const box = new Box();
const environment = { XDG_CACHE_HOME: box.path('cache') };

function spillway(
  args: readonly string[],
  onStart?: Parameters<typeof runProcess>[2],
): Promise<Outcome> {
  return runProcess(process.execPath, [EXECUTABLE, ...args], onStart, environment);
}

let before: Record<string, string>;
beforeAll(async () => {
  writeJsonl(box.path('rows.jsonl'), ROWS);
  const outcome = await spillway(box.train());
  expect(outcome).toMatchObject({ status: 0, stderr: '' });
  before = snapshot(box.earlier);
});
afterAll(() => {
  rmSync(box.folder, { recursive: true });
});

/** A few of each table: the rest differs in nothing that a process would add. */
const CHOSEN = [MODEL_INPUTS, DATA_INPUTS, CONFIG_INPUTS, PATH_INPUTS].flatMap((inputs) =>
  inputs.filter((_, index) => index % Math.ceil(inputs.length / 3) === 1),
);

describe('the executable', () => {
  it.each(CHOSEN)('refuses $name', async ({ code, says, args }) => {
    const outcome = await spillway(args(box));
    expect(outcome.stderr).toMatch(new RegExp(`^error: ${code}: [^\\n]+\\n$`));
    expect(outcome.stderr).toMatch(says);
    expect(outcome).toMatchObject({ status: ERROR_EXIT_STATUS[code], stdout: '' });
    expect(snapshot(box.earlier)).toEqual(before);
  });
});

describe('a signal', () => {
  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('%s while data are read ends the process with %i', async (name, status) => {
    const many = box.path('many.jsonl');
    writeFileSync(many, `${JSON.stringify(ROWS[0])}\n`.repeat(300_000));
    const args = [...box.train({ data_files: many }), '--json'];
    const outcome = await spillway(args, (child) => {
      child.stdout!.once('data', () => child.kill(name));
    });
    expect(outcome.stderr).toMatch(new RegExp(`^${name}: stopping[^\\n]*\\n$`));
    expect(outcome.status).toBe(status);
    expect(outcome.stdout).not.toMatch(/started|interrupted|finished/);
    expect(snapshot(box.earlier)).toEqual(before);
  });

  it('ends the process while a pipe has no writer', async () => {
    const pipe = box.path('pipe.jsonl');
    expect(spawnSync('mkfifo', [pipe]).status).toBe(0);
    const args = box.train({ data_files: pipe, run_name: 'x' });
    const outcome = await spillway(args, (child) => {
      child.stderr!.once('data', () => setTimeout(() => child.kill('SIGTERM'), 500));
    });
    expect(outcome.stderr).toMatch(/^no effect here: run_name\nSIGTERM: stopping[^\n]*\n$/);
    expect(outcome.status).toBe(143);
    expect(snapshot(box.earlier)).toEqual(before);
  });

  it('that comes twice ends the process at once, though a read never ends', async () => {
    const folder = box.path('endless');
    mkdirSync(folder);
    expect(spawnSync('mkfifo', [join(folder, 'config.json')]).status).toBe(0);
    // The note about run_name comes when the signals are about to be handled.
    const args = box.train({ model_name_or_path: folder, run_name: 'x' });
    let ending: NodeJS.Signals | null = null;
    const outcome = await spillway(args, (child) => {
      child.stderr!.on('data', () => child.kill('SIGTERM'));
      child.on('exit', (_, signal) => (ending = signal));
    });
    expect(outcome.stderr).toMatch(/^no effect here: run_name\nSIGTERM: stopping[^\n]*\n$/);
    expect([outcome.status, ending]).toEqual([null, 'SIGTERM']);
    expect(snapshot(box.earlier)).toEqual(before);
  });
});

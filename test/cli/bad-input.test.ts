// Goal: bad models, data, configurations and paths give one line, a code and a status, and harm nothing.
import { readdirSync, rmSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { ERROR_EXIT_STATUS } from '../../core/errors.js';
import { exitStatusOf, renderError } from '../../src/cli/report-error.js';
import { runCli } from '../../src/cli/run-cli.js';
import { Box, ROWS } from './bad-input/bad-input.js';
import { CONFIG_INPUTS } from './bad-input/config-inputs.js';
import { DATA_INPUTS } from './bad-input/data-inputs.js';
import { MODEL_INPUTS } from './bad-input/model-inputs.js';
import { PATH_INPUTS } from './bad-input/path-inputs.js';
import { snapshot, writeJsonl, type Outcome } from './end-to-end.js';

const box = new Box();
const stdout = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
const stderr = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
const cacheHome = process.env['XDG_CACHE_HOME'];

/** The executable's main without the process: what it prints and its status. */
async function run(args: readonly string[]): Promise<Outcome> {
  const textOf = (spy: typeof stdout): string =>
    spy.mock.calls.map(([text]) => String(text)).join('');
  try {
    const status = await runCli(args);
    return { status, stdout: textOf(stdout), stderr: textOf(stderr) };
  } catch (error) {
    return {
      status: exitStatusOf(error),
      stdout: textOf(stdout),
      stderr: textOf(stderr) + renderError(error, false),
    };
  }
}

let before: Record<string, string>;
beforeAll(async () => {
  process.env['XDG_CACHE_HOME'] = box.path('cache');
  writeJsonl(box.path('rows.jsonl'), ROWS);
  const outcome = await run(box.train());
  expect(outcome).toMatchObject({ status: 0, stderr: '' });
  before = snapshot(box.earlier);
  expect(Object.keys(before).length).toBeGreaterThan(8);
});
afterEach(() => {
  stdout.mockClear();
  stderr.mockClear();
});
afterAll(() => {
  if (cacheHome === undefined) delete process.env['XDG_CACHE_HOME'];
  else process.env['XDG_CACHE_HOME'] = cacheHome;
  rmSync(box.folder, { recursive: true });
});

const INPUTS = [...MODEL_INPUTS, ...DATA_INPUTS, ...CONFIG_INPUTS, ...PATH_INPUTS];

describe('bad input', () => {
  it.each(INPUTS)('is refused: $name', async ({ code, says, args }) => {
    stdout.mockClear();
    stderr.mockClear();
    const outcome = await run(args(box));
    expect(outcome.stderr).toMatch(new RegExp(`^error: ${code}: [^\\n]+\\n$`));
    expect(outcome.stderr).toMatch(says);
    expect(outcome.status).toBe(ERROR_EXIT_STATUS[code]);
    expect(outcome.stdout).toBe('');
    expect(snapshot(box.earlier)).toEqual(before);
    expect(readdirSync(box.folder)).not.toContain('new');
  });

  it('has at least sixty rows, each with a name of its own', () => {
    expect(INPUTS.length).toBeGreaterThanOrEqual(60);
    expect(new Set(INPUTS.map(({ name }) => name)).size).toBe(INPUTS.length);
  });
});

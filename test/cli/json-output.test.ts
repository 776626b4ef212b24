// Goal: through the built executable, machines get events on standard output and JSON on standard error.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  EXECUTABLE,
  TINY_MODEL,
  readJson,
  runProcess,
  train,
  trainArguments,
  workFolder,
  writeJsonl,
  type Flags,
  type Outcome,
} from './end-to-end.js';
import { FakeTerminal } from './reporters/fake-terminal.js';

const folder = workFolder();
const path = (name: string): string => join(folder, name);
const rows = Array.from({ length: 8 }, (_, row) => ({
  input_ids: Array.from({ length: 8 + row }, (__, i) => 3 + ((row + i) % 7) * 11),
}));

const base: Flags = {
  model_name_or_path: TINY_MODEL,
  data_files: writeJsonl(path('rows.jsonl'), rows),
  eval_files: writeJsonl(path('eval.jsonl'), rows.slice(0, 3)),
  output_dir: path('output'),
  device_memory: '8MiB',
  host_memory: '16MiB',
  max_steps: 4,
  logging_steps: 2,
  eval_strategy: 'steps',
  eval_steps: 2,
  save_steps: 2,
};

type Fields = Readonly<Record<string, unknown>>;

/** Every line of `text` as JSON; it ends in a newline. */
function parseLines(text: string): Fields[] {
  expect(text === '' || text.endsWith('\n')).toBe(true);
  return text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Fields);
}

function command(flags: Flags, ...more: string[]): string {
  return [process.execPath, EXECUTABLE, ...trainArguments(flags), ...more]
    .map((word) => `'${word.replaceAll("'", "'\\''")}'`)
    .join(' ');
}

describe('a run with --json and log_format json', () => {
  let outcome: Outcome;
  let events: Fields[];
  beforeAll(async () => {
    outcome = await train({ ...base, log_format: 'json', run_name: 'x' }, '--json');
    expect(outcome.status).toBe(0);
    events = parseLines(outcome.stdout);
  });

  it('prints the events of the run in order, and nothing else', () => {
    const names = events.map((event) => event['event']);
    const [start, end] = [names.indexOf('started'), names.length - 1];
    expect(names.slice(0, start).every((name) => name === 'preparing')).toBe(true);
    expect(names[end]).toBe('finished');
    const stepsOf = (name: string) =>
      events.flatMap((event, at) => (event['event'] === name ? [[event['step'], at]] : []));
    expect(stepsOf('stepped').map(([step]) => step)).toEqual([1, 2, 3, 4]);
    for (const name of ['logged', 'evaluated', 'saved']) {
      const told = stepsOf(name);
      expect(told.map(([step]) => step)).toEqual([2, 4]);
      for (const [step, at] of told) {
        const stepped = stepsOf('stepped').find(([of]) => of === step)!;
        expect(at).toBeGreaterThan(stepped[1] as number);
      }
    }
  });

  it('tells what the files of the run tell', () => {
    const { event, folder: saved, ...summary } = events.at(-1)!;
    expect([event, saved]).toEqual(['finished', base['output_dir']]);
    expect(summary).toEqual(readJson(path('output/summary.json')));
    const folders = events.filter((one) => one['event'] === 'saved').map((one) => one['folder']);
    expect(folders).toEqual([path('output/checkpoint-2'), path('output/checkpoint-4')]);
    for (const one of folders) expect(existsSync(one as string)).toBe(true);
  });

  it('writes notes as JSON lines', () => {
    const notes = parseLines(outcome.stderr);
    expect(notes.length).toBeGreaterThan(0);
    for (const note of notes) {
      const time = expect.any(Number) as number;
      const msg = expect.stringMatching(/^[^\n]+$/) as string;
      expect(note).toMatchObject({ level: expect.any(Number) as number, time, msg });
    }
    expect(notes[0]!['msg']).toContain('run_name');
  });
});

describe('an error', () => {
  const missing = { ...base, data_files: path('nothing.jsonl') };
  const file = path('config.yaml');
  writeFileSync(file, 'log_format: json\n');

  it.each([
    ['--json', () => train(missing, '--json')],
    ['log_format json as a flag', () => train({ ...missing, log_format: 'json' })],
    ['log_format json in a file', () => train(missing, file)],
  ])('is one JSON object with %s', async (_, run) => {
    const outcome = await run();
    expect(outcome).toMatchObject({ status: 2, stdout: '' });
    const [error, ...rest] = parseLines(outcome.stderr);
    expect(rest).toEqual([]);
    expect(error).toEqual({
      code: 'DATA_NOT_FOUND',
      message: expect.stringContaining('nothing.jsonl') as string,
      facts: expect.any(Object) as object,
      exit_status: 2,
    });
  });

  it('on the command line itself is JSON too', async () => {
    const outcome = await train({ ...base, max_stpes: 3 }, '--json');
    expect(parseLines(outcome.stderr)).toMatchObject([{ code: 'CONFIG_UNKNOWN_KEY' }]);
  });
});

it('a signal ends the events with the checkpoint that is left', async () => {
  const run = path('stopped');
  const flags = { ...base, output_dir: run, max_steps: 100_000, save_steps: 100_000 };
  const args = trainArguments({ ...flags, eval_strategy: 'no', log_format: 'json' });
  const outcome = await runProcess(process.execPath, [EXECUTABLE, ...args, '--json'], (child) => {
    const onData = (data: Buffer): void => {
      if (!data.includes('"stepped"')) return;
      child.stdout!.off('data', onData);
      child.kill('SIGINT');
    };
    child.stdout!.on('data', onData);
  });
  expect(outcome.status).toBe(130);
  const last = parseLines(outcome.stdout).at(-1)!;
  const step = last['step'] as number;
  expect(last).toEqual({ event: 'interrupted', step, folder: join(run, `checkpoint-${step}`) });
  expect(readdirSync(run)).toContain(`checkpoint-${step}`);
  const note = parseLines(outcome.stderr).at(-1)!;
  expect(note).toMatchObject({ level: 30, msg: expect.stringMatching(/^SIGINT: /) as string });
});

it('goes on when the reader of its events is gone', async () => {
  const run = path('unread');
  const flags = { ...base, output_dir: run };
  const script = `set -o pipefail; ${command(flags, '--json')} | head -n 1`;
  const outcome = await runProcess('bash', ['-c', script]);
  expect(outcome).toMatchObject({ status: 0, stderr: '' });
  expect(parseLines(outcome.stdout)).toHaveLength(1);
  expect(existsSync(join(run, 'model.safetensors'))).toBe(true);
});

/** Runs `shellCommand` on a pseudo-terminal; what a person then sees, and the status. */
async function onTerminal(shellCommand: string): Promise<{ lines: string[]; status: unknown }> {
  const environment = { TERM: 'xterm', CI: '' };
  const args = ['-qec', `stty cols 100 rows 40; ${shellCommand}`, '/dev/null'];
  const outcome = await runProcess('script', args, undefined, environment);
  const terminal = new FakeTerminal(100, 40);
  terminal.write(outcome.stdout.replaceAll('\r\n', '\n'));
  return { lines: terminal.lines, status: outcome.status };
}

const hasScript = spawnSync('script', ['-qec', 'true', '/dev/null']).status === 0;
describe.runIf(hasScript)('on a pseudo-terminal', () => {
  it('a run leaves its lines and the table, and no trace of its bar', async () => {
    const { lines, status } = await onTerminal(command({ ...base, output_dir: path('seen') }));
    expect(status, lines.join('\n')).toBe(0);
    expect(lines.filter((line) => line.startsWith('step '))).toHaveLength(2);
    expect(lines.at(-1)).toBe(`model saved in ${path('seen')}`);
    expect(lines.join('\n')).not.toMatch(/\d% \[|reading/);
  });

  it('an error stands alone on its line', async () => {
    const bad = writeJsonl(path('bad.jsonl'), [...rows, { input_ids: [100_000] }]);
    const { lines, status } = await onTerminal(command({ ...base, data_files: bad }));
    expect(status).toBe(2);
    expect(lines.join('')).toMatch(/^error: TOKEN_OUT_OF_RANGE: /);
  });
});

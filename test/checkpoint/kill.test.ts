// Goal: killing a process that saves, at whatever moment, leaves its checkpoints and final model.
import { spawn } from 'node:child_process';
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { build } from 'esbuild';
import { beforeAll, expect, it } from 'vitest';

import { isCoded } from '../../core/errors.js';
import { listCheckpoints } from '../../src/checkpoint/list-checkpoints.js';
import { temporaryFolder } from './temporary-folder.js';
import { checkpointVersions, versionOf } from './versioned-save.js';

const KILLS = 24;

/** Milliseconds from the first save to the kill, at most: some six saves of an idle machine. */
const LONGEST_LIFE_MS = 90;

const root = temporaryFolder('memory');
const program = join(root, 'saving-child.mjs');
const folder = join(root, 'output');

beforeAll(async () => {
  await build({
    entryPoints: [fileURLToPath(new URL('./saving-child.ts', import.meta.url))],
    outfile: program,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    banner: {
      js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);",
    },
  });
});

/** Starts the program, kills it after `lifeMs` of saving, and gives what it has reported. */
async function saveAndKill(firstStep: number, lifeMs: number): Promise<string[]> {
  const child = spawn(process.execPath, [program, folder, String(firstStep)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise<string | null>((resolve) => {
    child.on('close', (_, signal) => resolve(signal));
  });
  let output = '';
  await new Promise<void>((resolve, reject) => {
    child.on('close', () => reject(new Error('the program ended before it was killed')));
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      resolve();
    });
  });
  await sleep(lifeMs);
  child.kill('SIGKILL');
  expect(await ended).toBe('SIGKILL');
  return output.split('\n').slice(0, -1);
}

function lastNumber(lines: readonly string[], word: string): number | undefined {
  const line = lines.findLast((text) => text.startsWith(word));
  return line === undefined ? undefined : Number(line.split(' ')[1]);
}

it(`holds over ${KILLS} kills at random moments`, async () => {
  mkdirSync(folder);
  let lastSaved: number | undefined;
  let lastFinal: number | undefined;
  let interruptedCount = 0;
  for (let kill = 0; kill < KILLS; kill += 1) {
    const lines = await saveAndKill((lastSaved ?? 0) + 1, Math.random() * LONGEST_LIFE_MS);
    lastSaved = lastNumber(lines, 'saved') ?? lastSaved;
    lastFinal = lastNumber(lines, 'final') ?? lastFinal;
    if (readdirSync(folder).some((name) => name.startsWith('.'))) interruptedCount += 1;
    // As a stranger finds them: whole, under their own numbers.
    for (const [step, version] of await checkpointVersions(folder)) expect(version).toBe(step);
    const found = await versionOf(folder).catch((error: unknown) => {
      if (!isCoded(error) || error.code !== 'MODEL_NOT_FOUND') throw error;
      return undefined;
    });
    // As the next run finds them: nothing that was reported is lost, nothing half done is left.
    const steps = (await listCheckpoints(folder)).map(({ step }) => step);
    if (lastSaved !== undefined) expect(Math.max(...steps)).toBeGreaterThanOrEqual(lastSaved);
    for (const [step, version] of await checkpointVersions(folder)) expect(version).toBe(step);
    if (lastFinal !== undefined) {
      const version = await versionOf(folder);
      expect(version).toBeGreaterThanOrEqual(Math.max(lastFinal, found ?? 0));
      lastFinal = version;
    }
    lastSaved = steps.at(-1);
    expect(readdirSync(folder).filter((name) => name.startsWith('.'))).toEqual([]);
  }
  expect(lastFinal).toBeGreaterThan(0);
  expect(interruptedCount).toBeGreaterThan(KILLS / 4);
});

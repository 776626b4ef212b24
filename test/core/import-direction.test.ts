// Goal: imports go downward only in the house, and the script that says so can say no.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';

const script = fileURLToPath(new URL('../../scripts/check-imports.mjs', import.meta.url));
const house = mkdtempSync(join(tmpdir(), 'spillway-imports-'));
afterAll(() => {
  rmSync(house, { recursive: true });
});

function run(path: string): { status: number | null; lines: string[] } {
  const { status, stderr } = spawnSync(process.execPath, [path], { encoding: 'utf8' });
  return { status, lines: stderr.split('\n').filter((line) => line !== '') };
}

/** The script's verdict on a small house of these files. */
function verdict(files: Readonly<Record<string, string>>): ReturnType<typeof run> {
  rmSync(house, { recursive: true });
  const copy = join(house, 'scripts/check-imports.mjs');
  const all = { 'core/a.ts': '', 'tiers/host/a.ts': '', 'src/cli/a.ts': '', ...files };
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(house, path)), { recursive: true });
    writeFileSync(join(house, path), text);
  }
  mkdirSync(dirname(copy));
  cpSync(script, copy);
  return run(copy);
}

it('finds no upward import in this project', () => {
  expect(run(script)).toEqual({ status: 0, lines: [] });
});

it('lets floors import from floors below and from themselves', () => {
  const files = {
    'src/engine/a.ts': "import { x } from '../plan/a.js';\nimport './b.js';",
    'src/engine/b.ts': "export * from '../../core/a.js';\nimport 'node:fs';",
    'src/plan/a.ts': "import type { Y } from '../optim/a.js';",
    'src/optim/a.ts': '',
  };
  expect(verdict(files)).toEqual({ status: 0, lines: [] });
});

it('names upward imports, imports of siblings, dynamic ones included, and strangers', () => {
  const files = {
    'core/b.ts': "import { x } from '../src/cli/a.js';",
    'src/plan/a.ts': "import type { Y } from '../data/a.js';",
    'src/data/a.ts': "export const load = () => import('../engine/a.js');",
    'src/engine/a.ts': '',
    'src/attic/a.ts': '',
  };
  const { status, lines } = verdict(files);
  expect(status).toBe(1);
  expect(lines.sort()).toEqual([
    'core/b.ts imports src/cli/a.ts: imports go downward only',
    'src/attic/a.ts: belongs to no floor of scripts/check-imports.mjs',
    'src/data/a.ts imports src/engine/a.ts: imports go downward only',
    'src/plan/a.ts imports src/data/a.ts: imports go downward only',
  ]);
});

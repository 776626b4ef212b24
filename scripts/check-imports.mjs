/**
 * Checks the import direction: a floor imports only from floors below it in this list; siblings
 * within braces do not import one another. Exits 1 and names each offending import.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');

/** Folders (or files, without extension) from the top floor down. Ranks equal = siblings. */
const RANKS = [
  ['src/cli'],
  ['src/index'],
  ['src/report'],
  ['src/train', 'src/generate'],
  ['src/engine'],
  ['src/plan', 'src/checkpoint', 'src/data'],
  ['src/optim'],
  ['src/config'],
  ['src/model'],
  ['tiers/tier-manager'],
  ['tiers/device', 'tiers/nvme'],
  ['tiers/host'],
  ['tiers/state-location'],
  ['tiers/native'],
  ['core'],
];

function rankOf(path) {
  const index = RANKS.findIndex((group) =>
    group.some((prefix) => path === `${prefix}.ts` || path.startsWith(`${prefix}/`)),
  );
  return index;
}

function roomOf(path) {
  return RANKS.flat().find((prefix) => path === `${prefix}.ts` || path.startsWith(`${prefix}/`));
}

function files(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) return files(path);
    return path.endsWith('.ts') ? [path] : [];
  });
}

const problems = [];
for (const file of ['core', 'tiers', 'src'].flatMap((folder) => files(join(root, folder)))) {
  const from = relative(root, file);
  if (rankOf(from) < 0) problems.push(`${from}: belongs to no floor of scripts/check-imports.mjs`);
  const text = readFileSync(file, 'utf8');
  for (const match of text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)) {
    const to = relative(root, resolve(dirname(file), match[1])).replace(/\.js$/, '.ts');
    if (rankOf(to) < 0 || roomOf(to) === roomOf(from)) continue;
    if (rankOf(to) <= rankOf(from))
      problems.push(`${from} imports ${to}: imports go downward only`);
  }
}
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);

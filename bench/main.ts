/**
 * @file Runs benchmarks: `npm run bench -- adamw crc32c …`, or without a name all but the longest.
 *
 * Each `bench/<name>.ts` prints one JSON line per case: from its default export, from an exported
 * function called `bench…`, or, having neither, when it is imported.
 */
import { readdirSync } from 'node:fs';

const OTHER_FILES = ['main', 'alternate', 'fio', 'regimes', 'run-cli'];

/** Minutes, and gigabytes of disk: only where they are asked for. */
const BY_NAME_ONLY = ['tinyllama'];

const available = readdirSync(new URL('.', import.meta.url))
  .filter((file) => file.endsWith('.ts'))
  .map((file) => file.slice(0, -'.ts'.length))
  .filter((name) => !OTHER_FILES.includes(name))
  .sort();

// Taken out, since a benchmark that runs when imported reads its own arguments from there.
const asked = process.argv.splice(2);
const unknown = asked.filter((name) => !available.includes(name));
if (unknown.length > 0) {
  process.stderr.write(
    `no benchmark "${unknown.join('", "')}"; there are: ${available.join(', ')}\n`,
  );
  process.exitCode = 2;
} else {
  const usual = available.filter((name) => !BY_NAME_ONLY.includes(name));
  for (const name of asked.length > 0 ? asked : usual) {
    const module = (await import(`./${name}.ts`)) as Record<string, unknown>;
    const entry = Object.entries(module).find(([key]) => /^(default$|bench)/.test(key))?.[1];
    if (typeof entry === 'function') await (entry as () => void | Promise<void>)();
  }
}

/**
 * @file Tokens per second of 2 MiB of text (this project's documents, repeated) with the tokenizer of
 * fixtures/tokenizers/bpe-tiny: on the calling thread, and with 1 and 2 threads, their start included.
 *
 * The ceiling of n threads is n times the calling thread's rate in the same round; `cpuSeconds` is
 * what the process used. Prints one JSON line per case: medians of the rounds.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findDataFiles } from '../src/data/data-files.js';
import { tokenizeFiles } from '../src/data/tokenize-files.js';

const ROUNDS = 3;
const TEXT_BYTES = 2 ** 21;
const ROW_CHARACTERS = 2000;

const CASES = [
  { name: 'calling thread', workers: 1, inlineBytes: Infinity },
  { name: '1 thread', workers: 1, inlineBytes: 0 },
  { name: '2 threads', workers: 2, inlineBytes: 0 },
] as const;

/** Rows of text as JSONL, the same in each run of one version of the documents. */
function textRows(): string {
  const docs = fileURLToPath(new URL('../docs/', import.meta.url));
  const names = readdirSync(docs).filter((name) => name.endsWith('.md'));
  const text = names
    .sort()
    .map((name) => readFileSync(join(docs, name), 'utf8'))
    .join('\n');
  const rows: string[] = [];
  for (let bytes = 0, at = 0; bytes < TEXT_BYTES; at = (at + ROW_CHARACTERS) % text.length) {
    const row = JSON.stringify({ text: text.slice(at, at + ROW_CHARACTERS) });
    rows.push(row);
    bytes += row.length;
  }
  return rows.join('\n');
}

const median = (values: number[]) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

/** The three cases in turn, as often as there are rounds. */
export async function benchTokenize(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-bench-'));
  try {
    const path = join(folder, 'text.jsonl');
    writeFileSync(path, textRows());
    const files = await findDataFiles([path], 'data_files');
    const encoder = {
      folder: fileURLToPath(new URL('../fixtures/tokenizers/bpe-tiny', import.meta.url)),
      textField: 'text',
      completionOnlyLoss: true,
      assistantOnlyLoss: false,
      maxLength: 1024,
      vocabSize: 400,
    };
    const seconds = CASES.map((): number[] => []);
    const cpuSeconds = CASES.map((): number[] => []);
    let tokens = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const [index, { workers, inlineBytes }] of CASES.entries()) {
        const cpu = process.cpuUsage();
        const started = performance.now();
        const { arena } = await tokenizeFiles({ files, encoder, workers, inlineBytes });
        seconds[index]?.push((performance.now() - started) / 1000);
        const { user, system } = process.cpuUsage(cpu);
        cpuSeconds[index]?.push((user + system) / 1e6);
        tokens = arena.tokenCount;
      }
    }
    for (const [index, { name, workers }] of CASES.entries()) {
      const ceilings = seconds[0]?.map((time) => (workers * tokens) / time) ?? [];
      const line = {
        case: `tokenize: ${name}`,
        tokensPerSecond: Math.round(tokens / median(seconds[index] ?? [])),
        ceilingTokensPerSecond: Math.round(median(ceilings)),
        cpuSeconds: Number(median(cpuSeconds[index] ?? []).toFixed(2)),
        tokens,
        rounds: ROUNDS,
      };
      process.stdout.write(`${JSON.stringify(line)}\n`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

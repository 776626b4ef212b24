// Goal: threads give the rows, counts and errors that one thread gives, and one that dies or an abort ends it.
import { rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { describe, expect, it } from 'vitest';
import { byteLevelTokenizer } from '../../src/checkpoint/byte-level-tokenizer.js';
import { byteLevelTokenizerConfig } from '../../src/checkpoint/byte-level-tokenizer.js';
import { hashFiles } from '../../src/data/content-hash.js';
import { findDataFiles } from '../../src/data/data-files.js';
import { tokenizeFiles } from '../../src/data/tokenize-files.js';
import type { TokenizedFiles, TokenizeOptions } from '../../src/data/tokenize-files.js';
import { failureOf, temporaryFiles } from './temporary-files.js';

const file = temporaryFiles();
const folder = dirname(file(JSON.stringify(byteLevelTokenizer()), 'tokenizer.json'));
file(JSON.stringify(byteLevelTokenizerConfig(64)), 'tokenizer_config.json');

/** Rows of each kind, some to be cut, some to be left out; 4096 make a batch. */
function linesOf(count: number, salt: number): string[] {
  return Array.from({ length: count }, (_, row) => {
    const id = (row * 31 + salt) % 256;
    if (row % 997 === 0) return JSON.stringify({ text: `row ${row} of ${salt}` });
    if (row % 11 === 0) return JSON.stringify({ input_ids: [id, 1, 2], labels: [-100, -100, 2] });
    if (row % 13 === 0) return JSON.stringify({ input_ids: [id] });
    return JSON.stringify({ input_ids: Array.from({ length: 2 + (row % 9) }, () => id) });
  });
}

async function tokenize(
  contents: readonly string[],
  more: Partial<TokenizeOptions> = {},
): Promise<TokenizedFiles & { contentHash: string }> {
  const files = await findDataFiles(
    contents.map((text) => file(text)),
    'data_files',
  );
  return tokenizeFiles({
    files,
    encoder: {
      folder,
      textField: 'text',
      completionOnlyLoss: true,
      assistantOnlyLoss: false,
      maxLength: 8,
      vocabSize: 257,
    },
    workers: 1,
    ...more,
  });
}

function summaryOf({ arena, ...rest }: TokenizedFiles) {
  const rows = Array.from({ length: arena.length }, (_, index) => {
    const { inputIds, labels } = arena.row(index);
    return `${inputIds.join()}|${labels === inputIds ? '' : labels.join()}`;
  });
  return { ...rest, rows };
}

const inline = { inlineBytes: Infinity };
const threads = { inlineBytes: 0 };

describe('threads', () => {
  it('give the same rows, counts, notes and hash in file order, however many there are', async () => {
    const contents = [linesOf(8500, 1).join('\n'), '', `${linesOf(4500, 2).join('\n')}\n`];
    const expected = summaryOf(await tokenize(contents, inline));
    expect(expected.lineCount).toBe(13_000);
    expect(expected.truncatedCount).toBeGreaterThan(0);
    expect(expected.skippedCount).toBeGreaterThan(0);
    for (const workers of [1, 2]) {
      const seen: [number, number][] = [];
      const onBatch = (rows: number, bytes: number) => void seen.push([rows, bytes]);
      const tokenized = await tokenize(contents, { ...threads, workers, onBatch });
      expect(summaryOf(tokenized)).toEqual(expected);
      expect(seen).toEqual(seen.toSorted((a, b) => a[0] - b[0] || a[1] - b[1]));
      expect(seen.at(-1)).toEqual([13_000, contents.join('').length]);
      expect(seen.length).toBeGreaterThanOrEqual(4);
    }
  });

  it('report the first bad row in file order, with its code, facts and place', async () => {
    const lines = linesOf(14_000, 3);
    lines[13_000] = '{"input_ids": [1, 999]}';
    lines[5000] = '{"input_ids": [1, 2, 777]}';
    lines[5001] = 'no json';
    const contents = [lines.join('\n')];
    for (const how of [inline, { ...threads, workers: 2 }]) {
      const error = await failureOf(() => tokenize(contents, how));
      expect(error.code).toBe('TOKEN_OUT_OF_RANGE');
      expect(error.facts).toEqual({ id: 777, vocabSize: 257 });
      expect(error.message).toMatch(/\.jsonl:5001 has the token id 777/);
    }
  });

  it('report a bad row before a file that cannot be read, which comes later', async () => {
    const files = await findDataFiles([file('{"input_ids": [1, 2]}\n{}'), file('')], 'data_files');
    rmSync(files[1]!.path);
    for (const how of [inline, threads]) {
      const error = await failureOf(() => tokenize([], { files, ...how }));
      expect(error.code).toBe('DATA_INVALID');
      expect(error.message).toMatch(/:2 /);
      const unread = await failureOf(() => tokenize([], { files: files.slice(1), ...how }));
      expect(unread.code).toBe('DATA_NOT_FOUND');
    }
  });
});

describe('a thread that dies', () => {
  const workers = {
    'exits in a task': 'export function encode() { process.exit(3); }',
    'fails to load': 'throw new Error("no module");',
    'has no task': 'export const other = 1;',
  };

  it.each(Object.entries(workers))('%s: WORKER_FAILED, not a hang', async (kind, code) => {
    const workerFile = file(code, `${kind.replaceAll(' ', '-')}.mjs`);
    const contents = [linesOf(20_000, 4).join('\n')];
    const error = await failureOf(() => tokenize(contents, { ...threads, workers: 2, workerFile }));
    expect(error.code).toBe('WORKER_FAILED');
    expect(error.message).toContain('a tokenising thread died: ');
  });
});

describe('an abort', () => {
  const workerFile = file(
    'export function encode() { return new Promise(() => setInterval(() => 0, 1e6)); }',
    'stuck.mjs',
  );
  const contents = [linesOf(20_000, 5).join('\n')];

  it('before, during reading and while threads are at work gives its reason', async () => {
    const reason = new Error('stopped');
    const before = tokenize(contents, { ...inline, signal: AbortSignal.abort(reason) });
    await expect(before).rejects.toBe(reason);
    for (const how of [inline, threads]) {
      const controller = new AbortController();
      const onBatch = () => {
        controller.abort(reason);
      };
      const during = tokenize(contents, { ...how, onBatch, signal: controller.signal });
      await expect(during).rejects.toBe(reason);
    }
    const controller = new AbortController();
    setTimeout(() => {
      controller.abort(reason);
    }, 200);
    const stuck = tokenize(contents, { ...threads, workerFile, signal: controller.signal });
    await expect(stuck).rejects.toBe(reason);
  });
});

it('reads a hash that only contents and their division into files decide', async () => {
  const hash = async (...contents: string[]) => {
    const { contentHash } = await tokenize(contents, inline);
    const files = await findDataFiles(
      contents.map((text) => file(text)),
      'data_files',
    );
    expect(await hashFiles(files, undefined)).toBe(contentHash);
    return contentHash;
  };
  const [a, b] = ['{"input_ids": [1, 2]}\n', '{"input_ids": [3, 4]}\n'];
  const hashes = [await hash(a, b), await hash(b, a), await hash(a + b), await hash(a, b, '')];
  expect(new Set(hashes).size).toBe(4);
  expect(await hash(a, b)).toBe(hashes[0]);
});

// Goal: training and evaluation data come from files or a split, packed or not, and from the cache unchanged.
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import { byteLevelTokenizer } from '../../src/checkpoint/byte-level-tokenizer.js';
import { byteLevelTokenizerConfig } from '../../src/checkpoint/byte-level-tokenizer.js';
import { loadDatasets } from '../../src/data/load-dataset.js';
import type {
  DatasetProgress,
  DatasetsOptions,
  TokenDataset,
} from '../../src/data/load-dataset.js';
import { TokenArena } from '../../src/data/token-arena.js';
import { TokenCache } from '../../src/data/token-cache.js';
import { failureOf } from './temporary-files.js';

const root = mkdtempSync(join(tmpdir(), 'spillway-datasets-'));
afterAll(() => {
  rmSync(root, { recursive: true });
});

function write(name: string, contents: string): string {
  const path = join(root, name);
  writeFileSync(path, contents);
  return path;
}

write('tokenizer.json', JSON.stringify(byteLevelTokenizer()));
write('tokenizer_config.json', JSON.stringify(byteLevelTokenizerConfig(64)));

/** `count` rows; row r is [offset + r, 1, …] with 2 to 6 tokens. */
function rowsFrom(offset: number, count: number): string {
  return Array.from({ length: count }, (_, row) => {
    const rest = Array.from({ length: 1 + (row % 5) }, () => 1);
    return `${JSON.stringify({ input_ids: [offset + row, ...rest] })}\n`;
  }).join('');
}

const train = write('train.jsonl', rowsFrom(100, 20));
const evaluation = write('eval.jsonl', rowsFrom(200, 7));

/** Loads, and tells what it said. */
async function load(more: Partial<DatasetsOptions> = {}) {
  const messages: string[] = [];
  const progress: DatasetProgress[] = [];
  const note = (message: string) => void messages.push(message);
  const loaded = await loadDatasets({
    files: [train],
    textField: 'text',
    completionOnlyLoss: true,
    assistantOnlyLoss: false,
    maxLength: 16,
    packing: false,
    workers: 1,
    tokenCache: 'none',
    seed: 42,
    folder: root,
    vocabSize: 257,
    logger: { info: note, warn: note },
    onProgress: (now) => progress.push(now),
    ...more,
  });
  return { ...loaded, messages, progress };
}

function rowsOf(dataset: TokenDataset | undefined) {
  return Array.from({ length: dataset?.length ?? 0 }, (_, index) => {
    const { inputIds, labels, documents, positionIds } = dataset!.row(index);
    return [inputIds, labels, documents, positionIds].map((part) => part && [...part]);
  });
}

function firstIds(dataset: TokenDataset | undefined): number[] {
  return rowsOf(dataset).map(([ids]) => ids![0]!);
}

const numbers = (offset: number, count: number) =>
  Array.from({ length: count }, (_, row) => offset + row);

describe('evaluation data', () => {
  it('are absent, from files of their own, or rows set aside by seed', async () => {
    const alone = await load();
    expect(alone.eval).toBeUndefined();
    expect(firstIds(alone.train)).toEqual(numbers(100, 20));
    const both = await load({ evalFiles: [evaluation] });
    expect(firstIds(both.train)).toEqual(numbers(100, 20));
    expect(firstIds(both.eval)).toEqual(numbers(200, 7));
    for (const [evalSplit, count] of [
      [0.11, 3],
      [4, 4],
    ] as const) {
      const split = await load({ evalSplit });
      const [left, right] = [firstIds(split.train), firstIds(split.eval)];
      expect(right).toHaveLength(count);
      expect([...left, ...right].toSorted()).toEqual(numbers(100, 20));
      for (const part of [left, right]) expect(part).toEqual(part.toSorted());
      const again = await load({ evalSplit, seed: 43 });
      expect(firstIds(again.eval)).not.toEqual(right);
      expect(split.train.tokenCount + split.eval!.tokenCount).toBe(alone.train.tokenCount);
      expect(split.eval!.longestRow).toBe(
        Math.max(...rowsOf(split.eval).map(([ids]) => ids!.length)),
      );
    }
  });

  it('are refused when named twice, empty, missing or when they leave nothing to train on', async () => {
    const twice = await failureOf(() => load({ evalFiles: [evaluation], evalSplit: 0.1 }));
    expect(twice.code).toBe('CONFIG_INVALID');
    expect(twice.message).toContain('eval_files and eval_split');
    const all = await failureOf(() => load({ evalSplit: 20 }));
    expect(all.code).toBe('CONFIG_INVALID');
    expect(all.message).toContain('20 of 20 rows');
    const none = await failureOf(() => load({ evalFiles: [] }));
    expect(none.code).toBe('CONFIG_INVALID');
    expect(none.message).toContain('eval_files');
    const missing = await failureOf(() => load({ evalFiles: ['/no/such.jsonl'] }));
    expect(missing.code).toBe('DATA_NOT_FOUND');
    expect(missing.message).toContain('eval_files');
    const short = write('short.jsonl', '{"input_ids": [1]}\n');
    const empty = await failureOf(() => load({ evalFiles: [short] }));
    expect(empty.code).toBe('DATA_EMPTY');
    expect(empty.message).toContain('no row to evaluate on; eval_files');
    expect(empty.facts).toEqual({ eval_files: [short], skippedRows: 1 });
  });
});

it('packs both splits, and says how well', async () => {
  const {
    train: packed,
    eval: packedEval,
    messages,
  } = await load({
    packing: true,
    evalFiles: [evaluation],
  });
  const plain = await load({ evalFiles: [evaluation] });
  for (const [dataset, source] of [
    [packed, plain.train],
    [packedEval!, plain.eval!],
  ] as const) {
    expect(dataset.packed).toBe(true);
    expect(dataset.documentCount).toBe(source.length);
    expect(dataset.length).toBeLessThan(source.length);
    expect(dataset.tokenCount).toBe(source.tokenCount);
    const ids = rowsOf(dataset).flatMap(([row]) => row!);
    expect(ids.toSorted()).toEqual(
      rowsOf(source)
        .flatMap(([row]) => row!)
        .toSorted(),
    );
  }
  // Four rows each of 2 to 6 tokens: 6 6 4 | 6 6 4 | 5 5 5 | 5 4 4 3 | 3 3 3 2 2 2 | 2.
  expect(packed.length).toBe(6);
  expect(messages[0]).toBe('data: 20 rows packed into 6 sequences of max_length 16, 83 % filled');
});

it('tells progress of each split up to its last byte', async () => {
  const { progress } = await load({ evalFiles: [evaluation] });
  for (const [split, path, rows] of [
    ['train', train, 20],
    ['eval', evaluation, 7],
  ] as const) {
    const bytesTotal = readFileSync(path).length;
    const told = progress.filter((now) => now.split === split);
    expect(told[0]).toEqual({ split, rows: 0, bytesDone: 0, bytesTotal });
    expect(told.at(-1)).toEqual({ split, rows, bytesDone: bytesTotal, bytesTotal });
  }
});

it('warns once of what both splits meet', async () => {
  const folder = mkdtempSync(join(root, 'model-'));
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(byteLevelTokenizer()));
  const text = write('text.jsonl', '{"text": "abc"}\n');
  const { messages } = await load({ folder, files: [text], evalFiles: [text] });
  expect(messages).toEqual(['the model folder names no eos_token; none is appended to texts']);
});

describe('the token cache', () => {
  const text = write('long.jsonl', `${rowsFrom(100, 20)}{"text": "a text that is cut at 16"}\n[1]`);

  /** A folder for one test, with the names of its entries. */
  function cacheFolder() {
    const tokenCache = mkdtempSync(join(root, 'cache-'));
    return { tokenCache, entries: () => readdirSync(tokenCache) };
  }

  it('gives the rows, counts and messages that tokenising gave, without tokenising', async () => {
    const { tokenCache, entries } = cacheFolder();
    const options = {
      tokenCache,
      files: [write('a.jsonl', readFileSync(text, 'utf8').slice(0, -3))],
    };
    const first = await load({ ...options, evalFiles: [evaluation] });
    expect(entries()).toHaveLength(2);
    // The same contents under another name.
    const copy = write('copy.jsonl', readFileSync(options.files[0]!, 'utf8'));
    const second = await load({ ...options, files: [copy], evalFiles: [evaluation] });
    expect(entries()).toHaveLength(2);
    expect(second.messages).toEqual(first.messages);
    expect(second.messages).toContain('data: 1 rows cut to max_length 16');
    expect(second.progress.at(-1)).toEqual(first.progress.at(-1));
    for (const split of ['train', 'eval'] as const) {
      expect(rowsOf(second[split])).toEqual(rowsOf(first[split]));
      expect(second[split]!.truncatedCount).toBe(first[split]!.truncatedCount);
      expect(second[split]!.tokenCount).toBe(first[split]!.tokenCount);
    }
  });

  it('is what rows come from when it has them', async () => {
    const { tokenCache, entries } = cacheFolder();
    await load({ tokenCache });
    const key = entries()[0]!.slice(0, 64);
    const arena = new TokenArena();
    arena.append([5, 6, 7], undefined);
    const planted = { arena, lineCount: 1, truncatedCount: 0, skippedCount: 0, notes: ['planted'] };
    await new TokenCache(tokenCache, silentLogger).store(key, planted);
    const { train: rows, messages } = await load({ tokenCache });
    expect(firstIds(rows)).toEqual([5]);
    expect(messages).toEqual(['planted']);
  });

  it('is used for a split and packing of the same rows', async () => {
    const { tokenCache, entries } = cacheFolder();
    await load({ tokenCache });
    const { train: packed, eval: part } = await load({ tokenCache, packing: true, evalSplit: 5 });
    expect(entries()).toHaveLength(1);
    expect(packed.documentCount + part!.documentCount).toBe(20);
  });

  it('has other entries for other contents, tokenizers and options', async () => {
    const { tokenCache, entries } = cacheFolder();
    const path = write('changing.jsonl', '{"text": "abcd", "body": "wxyz"}\n');
    const ids = async (more: Partial<DatasetsOptions>) =>
      rowsOf((await load({ tokenCache, files: [path], ...more })).train)[0]![0];
    expect(await ids({})).toEqual([97, 98, 99, 100, 256]);
    expect(await ids({ maxLength: 3 })).toEqual([97, 98, 99]);
    expect(await ids({ textField: 'body' })).toEqual([119, 120, 121, 122, 256]);
    expect(await ids({ eosTokenId: 5 })).toEqual([97, 98, 99, 100, 5]);
    await ids({ vocabSize: 300 });
    expect(entries()).toHaveLength(5);
    // Same size, and times put back: contents decide.
    writeFileSync(path, '{"text": "abce", "body": "wxyz"}\n');
    expect(await ids({})).toEqual([97, 98, 99, 101, 256]);
    const folder = mkdtempSync(join(root, 'other-'));
    writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(byteLevelTokenizer()));
    expect(await ids({ folder })).toEqual([97, 98, 99, 101]);
    expect(entries()).toHaveLength(7);
  });

  it('refuses nothing that loads without it: rows of ids beside a broken template', async () => {
    const { tokenCache, entries } = cacheFolder();
    const folder = mkdtempSync(join(root, 'broken-'));
    writeFileSync(join(folder, 'tokenizer_config.json'), '{"chat_template": ');
    expect(firstIds((await load({ tokenCache, folder })).train)).toEqual(numbers(100, 20));
    expect(entries()).toEqual([]);
  });

  it('keeps nothing under the key of a tokenizer that changes meanwhile', async () => {
    const { tokenCache, entries } = cacheFolder();
    const folder = mkdtempSync(join(root, 'changing-'));
    // A clock that lets every report through: one comes between key and entry.
    let clock = 0;
    const now = vi.spyOn(performance, 'now').mockImplementation(() => (clock += 1000));
    const onProgress = ({ rows }: DatasetProgress) => {
      writeFileSync(join(folder, 'config.json'), `{"rows": ${rows}}`);
    };
    const first = await load({ tokenCache, folder, onProgress });
    now.mockRestore();
    expect(firstIds(first.train)).toEqual(numbers(100, 20));
    expect(entries()).toEqual([]);
  });

  it('keeps nothing of data that are refused', async () => {
    const { tokenCache, entries } = cacheFolder();
    expect((await failureOf(() => load({ tokenCache, files: [text] }))).code).toBe('DATA_INVALID');
    expect(entries()).toEqual([]);
  });

  it('tokenises again what is broken, and says so', async () => {
    const { tokenCache, entries } = cacheFolder();
    const first = await load({ tokenCache });
    const path = join(tokenCache, entries()[0]!);
    const bytes = readFileSync(path);
    bytes[bytes.length - 9]! ^= 1;
    writeFileSync(path, bytes);
    const second = await load({ tokenCache });
    expect(rowsOf(second.train)).toEqual(rowsOf(first.train));
    expect(second.messages[0]).toContain('is broken');
    const third = await load({ tokenCache });
    expect(third.messages).toEqual([]);
  });

  it('reads a pipe, which it can read only once, without keeping it', async () => {
    const { tokenCache, entries } = cacheFolder();
    const pipe = join(root, 'pipe');
    await new Promise((done) => execFile('mkfifo', [pipe], done));
    const writing = new Promise((done) => execFile('sh', ['-c', `cat ${train} > ${pipe}`], done));
    const { train: rows, progress } = await load({ tokenCache, files: [pipe] });
    await writing;
    expect(firstIds(rows)).toEqual(numbers(100, 20));
    expect(entries()).toEqual([]);
    expect(progress.at(-1)).toMatchObject({ rows: 20, bytesDone: readFileSync(train).length });
  });
});

// Goal: an entry comes back equal or not at all; the folder stays within its limits and may be shared.
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { statSync, truncateSync, utimesSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, expect, it } from 'vitest';
import { TokenArena } from '../../src/data/token-arena.js';
import { defaultCacheFolder, TokenCache } from '../../src/data/token-cache.js';
import type { TokenizedFiles } from '../../src/data/tokenize-files.js';

const root = mkdtempSync(join(tmpdir(), 'spillway-cache-'));
afterAll(() => {
  rmSync(root, { recursive: true });
});

let folderCount = 0;
function newCache(limits?: { bytes: number; entries: number }) {
  folderCount += 1;
  const folder = join(root, `${folderCount}`, 'tokens');
  const warnings: string[] = [];
  const logger = { info: () => undefined, warn: (message: string) => void warnings.push(message) };
  return { folder, warnings, cache: new TokenCache(folder, logger, limits) };
}

function keyOf(digit: string): string {
  return digit.repeat(64);
}

function tokensOf(rows: readonly { ids: number[]; labelled: boolean }[]): TokenizedFiles {
  const arena = new TokenArena();
  for (const { ids, labelled } of rows) {
    arena.append(ids, labelled ? ids.map((id) => (id % 2 === 0 ? -100 : id)) : undefined);
  }
  return { arena, lineCount: 9, truncatedCount: 2, skippedCount: 1, notes: ['ü note'] };
}

function plain({ arena, ...rest }: TokenizedFiles) {
  const rows = Array.from({ length: arena.length }, (_, index) => {
    const { inputIds, labels } = arena.row(index);
    // Millions of elements: strings compare faster than arrays.
    return [inputIds.join(), labels.join(), labels === inputIds];
  });
  return { ...rest, rows, tokenCount: arena.tokenCount };
}

const SMALL = tokensOf([
  { ids: [1, 2, 3], labelled: false },
  { ids: [7, 8], labelled: true },
]);

it('gives back what was stored, also over several chunks and of no rows', async () => {
  const { cache, warnings } = newCache();
  const large = Array.from({ length: 5 }, (_, row) => ({
    ids: Array.from({ length: 240_000 }, (_, t) => (t * 7 + row) % 50_000),
    labelled: row % 2 === 1,
  }));
  for (const tokens of [SMALL, tokensOf([]), tokensOf(large)]) {
    await cache.store(keyOf('a'), tokens);
    expect(plain((await cache.load(keyOf('a')))!)).toEqual(plain(tokens));
  }
  expect(await cache.load(keyOf('b'))).toBeUndefined();
  expect(warnings).toEqual([]);
});

it('keeps rows that are appended after loading apart from those that were there', async () => {
  const { cache } = newCache();
  await cache.store(keyOf('a'), SMALL);
  const { arena } = (await cache.load(keyOf('a')))!;
  for (let row = 0; row < 2000; row += 1) arena.append([row, row + 1], undefined);
  expect([...arena.row(1).labels]).toEqual([7, -100]);
  expect([...arena.row(2001).inputIds]).toEqual([1999, 2000]);
});

it('never gives anything else for a damaged file, but removes it with a warning', async () => {
  const { cache, folder, warnings } = newCache();
  const key = keyOf('c');
  await cache.store(key, SMALL);
  const path = join(folder, `${key}.tokens`);
  const valid = readFileSync(path);
  const damage = fc.oneof(
    fc.record({ kind: fc.constant('flip'), at: fc.nat(valid.length - 1), bit: fc.nat(7) }),
    fc.record({ kind: fc.constant('cut'), at: fc.nat(valid.length - 1), bit: fc.nat(7) }),
    fc.record({ kind: fc.constant('add'), at: fc.nat(20), bit: fc.nat(255) }),
  );
  await fc.assert(
    fc.asyncProperty(damage, async ({ kind, at, bit }) => {
      const bytes = Buffer.from(valid);
      if (kind === 'flip') bytes[at]! ^= 1 << bit;
      const added = kind === 'add' ? Buffer.alloc(at + 1, bit) : Buffer.alloc(0);
      writeFileSync(path, Buffer.concat([kind === 'cut' ? bytes.subarray(0, at) : bytes, added]));
      warnings.length = 0;
      expect(await cache.load(key)).toBeUndefined();
      expect(warnings).toHaveLength(1);
      expect(warnings[0]).toContain('is broken');
      expect(existsSync(path)).toBe(false);
    }),
    { numRuns: 150 },
  );
});

it('does not take the entry of one key for another', async () => {
  const { cache, folder } = newCache();
  await cache.store(keyOf('a'), SMALL);
  const bytes = readFileSync(join(folder, `${keyOf('a')}.tokens`));
  writeFileSync(join(folder, `${keyOf('b')}.tokens`), bytes);
  expect(await cache.load(keyOf('b'))).toBeUndefined();
  expect(await cache.load(keyOf('a'))).toBeDefined();
});

it('keeps as many entries as it may, those that were used last, and leaves other files', async () => {
  const { cache, folder } = newCache({ bytes: 2 ** 20, entries: 2 });
  await cache.store(keyOf('a'), SMALL);
  writeFileSync(join(folder, 'notes.txt'), 'mine');
  const old = new Date(2020, 1);
  const left = `${keyOf('a')}.tokens.00000000-0000-0000-0000-000000000000.tmp`;
  const fresh = left.replace('0000.tmp', '0001.tmp');
  for (const name of [left, fresh]) writeFileSync(join(folder, name), 'half');
  utimesSync(join(folder, left), old, old);
  await cache.store(keyOf('b'), SMALL);
  for (const digit of ['a', 'b']) utimesSync(join(folder, `${keyOf(digit)}.tokens`), old, old);
  await cache.load(keyOf('a'));
  await cache.store(keyOf('c'), SMALL);
  const names = [`${keyOf('a')}.tokens`, fresh, `${keyOf('c')}.tokens`, 'notes.txt'];
  expect(readdirSync(folder).toSorted()).toEqual(names);
});

it('keeps no more bytes than it may, and nothing that alone is too large', async () => {
  const { cache, folder, warnings } = newCache({ bytes: 3000, entries: 32 });
  const rows = tokensOf([{ ids: Array.from({ length: 400 }, (_, id) => id), labelled: false }]);
  for (const digit of ['a', 'b']) await cache.store(keyOf(digit), rows);
  expect(readdirSync(folder)).toEqual([`${keyOf('b')}.tokens`]);
  expect(statSync(join(folder, `${keyOf('b')}.tokens`)).size).toBeGreaterThan(1600);
  const huge = tokensOf([{ ids: Array.from({ length: 800 }, (_, id) => id), labelled: false }]);
  await cache.store(keyOf('d'), huge);
  expect(readdirSync(folder)).toEqual([`${keyOf('b')}.tokens`]);
  expect(warnings).toEqual([]);
});

it('is a warning when its folder cannot be made or written', async () => {
  const { cache, folder, warnings } = newCache();
  mkdirSync(join(folder, '..'), { recursive: true });
  writeFileSync(folder, 'a file');
  await cache.store(keyOf('a'), SMALL);
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toMatch(/cannot be written \(E\w+\); set token_cache/);
  expect(await cache.load(keyOf('a'))).toBeUndefined();
  expect(warnings[1]).toContain('cannot be read (ENOTDIR)');
});

it('is a warning when an entry cannot replace what has its name', async () => {
  const { cache, folder, warnings } = newCache();
  mkdirSync(join(folder, `${keyOf('a')}.tokens`, 'x'), { recursive: true });
  await cache.store(keyOf('a'), SMALL);
  expect(warnings).toHaveLength(1);
  expect(readdirSync(folder)).toEqual([`${keyOf('a')}.tokens`]);
});

it('may be shared: stores and loads of one key at once give whole entries or none', async () => {
  const { folder, warnings, cache } = newCache({ bytes: 2 ** 20, entries: 2 });
  const other = new TokenCache(
    folder,
    { info: () => undefined, warn: (m) => warnings.push(m) },
    {
      bytes: 2 ** 20,
      entries: 2,
    },
  );
  await Promise.all(
    Array.from({ length: 40 }, async (_, turn) => {
      const [mine, yours] = turn % 2 === 0 ? [cache, other] : [other, cache];
      const key = keyOf('abc'[turn % 3]!);
      await mine.store(key, SMALL);
      const loaded = await yours.load(key);
      if (loaded !== undefined) expect(plain(loaded)).toEqual(plain(SMALL));
    }),
  );
  expect(warnings).toEqual([]);
  // Two that prune at once may each have removed what the other kept.
  expect([1, 2]).toContain(readdirSync(folder).length);
});

it('survives a file that shrinks below what its header says', async () => {
  const { cache, folder, warnings } = newCache();
  await cache.store(keyOf('a'), SMALL);
  truncateSync(join(folder, `${keyOf('a')}.tokens`), 17);
  expect(await cache.load(keyOf('a'))).toBeUndefined();
  expect(warnings).toHaveLength(1);
});

it("lies in XDG's folder for caches, else in ~/.cache", () => {
  expect(defaultCacheFolder({ XDG_CACHE_HOME: '/x' })).toBe('/x/spillway/tokens');
  const home = join(homedir(), '.cache/spillway/tokens');
  expect(defaultCacheFolder({ XDG_CACHE_HOME: 'relative' })).toBe(home);
  expect(defaultCacheFolder({})).toBe(home);
});

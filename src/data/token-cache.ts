/**
 * @file The token cache: a folder with one file per tokenised data set, named by its key.
 *
 * A cache may only save time. What is broken in it is discarded, a folder that cannot be written is
 * a warning, and runs that share it do not harm one another: an entry appears whole, by rename, and
 * entries of one key are equal. Total size and number are bounded; what was used longest ago goes
 * first. Files that do not bear an entry's name are left alone.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import type { Logger } from '../../core/logger.js';
import { entryBytes, readTokens, writeTokens } from './token-cache-file.js';
import type { TokenizedFiles } from './tokenize-files.js';

/** What a cache holds at most. */
export interface TokenCacheLimits {
  readonly bytes: number;
  readonly entries: number;
}

/** Two thousand million tokens, or the data sets of a few weeks. */
const DEFAULT_LIMITS: TokenCacheLimits = { bytes: 8 * 2 ** 30, entries: 32 };

const ENTRY_NAME = /^[0-9a-f]{64}\.tokens$/;
const TEMPORARY_NAME = /^[0-9a-f]{64}\.tokens\.[0-9a-f-]{36}\.tmp$/;

/** A temporary file this old was left by a run that was killed. */
const ABANDONED_MS = 24 * 3600 * 1000;

/** The folder of people who set none: XDG's base directory for caches. */
export function defaultCacheFolder(env: Readonly<NodeJS.ProcessEnv> = process.env): string {
  const base = env['XDG_CACHE_HOME'];
  // The specification has relative paths ignored.
  const caches = base !== undefined && isAbsolute(base) ? base : join(homedir(), '.cache');
  return join(caches, 'spillway', 'tokens');
}

/** Entries by key; keys are SHA-256 in hex. */
export class TokenCache {
  readonly #folder: string;
  readonly #logger: Logger;
  readonly #limits: TokenCacheLimits;

  constructor(folder: string, logger: Logger, limits = DEFAULT_LIMITS) {
    this.#folder = folder;
    this.#logger = logger;
    this.#limits = limits;
  }

  /** The entry of `key`, or undefined; a broken one is removed with a warning. Never rejects. */
  async load(key: string): Promise<TokenizedFiles | undefined> {
    const path = this.#pathOf(key);
    let file: FileHandle;
    try {
      file = await open(path, 'r');
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') this.#warn(`cannot be read (${errnoOf(error)})`);
      return undefined;
    }
    try {
      const tokens = await readTokens(file, key);
      const now = new Date();
      // Marks it as used; in a folder of others it just grows old.
      await utimes(path, now, now).catch(() => undefined);
      return tokens;
    } catch (error) {
      const reason = error instanceof Error ? error.message.split('\n')[0] : String(error);
      this.#logger.warn(`token cache: ${path} is broken (${reason}); tokenising again`);
      await rm(path, { force: true }).catch(() => undefined);
      return undefined;
    } finally {
      await file.close();
    }
  }

  /** Keeps `tokens` and makes room for them; failing to is a warning. Never rejects. */
  async store(key: string, tokens: TokenizedFiles): Promise<void> {
    if (entryBytes(tokens) > this.#limits.bytes) return;
    const path = this.#pathOf(key);
    const temporary = `${path}.${randomUUID()}.tmp`;
    try {
      // Data may be private, and so are their tokens.
      await mkdir(this.#folder, { recursive: true, mode: 0o700 });
      const file = await open(temporary, 'wx', 0o600);
      try {
        await writeTokens(file, key, tokens);
      } finally {
        await file.close();
      }
      await rename(temporary, path);
      await this.#prune();
    } catch (error) {
      await rm(temporary, { force: true }).catch(() => undefined);
      this.#warn(`cannot be written (${errnoOf(error)})`);
    }
  }

  async #prune(): Promise<void> {
    const entries: { path: string; bytes: number; usedMs: number }[] = [];
    for (const name of await readdir(this.#folder)) {
      const temporary = TEMPORARY_NAME.test(name);
      if (!temporary && !ENTRY_NAME.test(name)) continue;
      const path = join(this.#folder, name);
      // Another run may have removed it.
      const status = await stat(path).catch(() => undefined);
      if (status === undefined) continue;
      if (!temporary) entries.push({ path, bytes: status.size, usedMs: status.mtimeMs });
      else if (Date.now() - status.mtimeMs > ABANDONED_MS) await rm(path, { force: true });
    }
    entries.sort((a, b) => b.usedMs - a.usedMs);
    let bytes = 0;
    for (const [index, entry] of entries.entries()) {
      bytes += entry.bytes;
      if (index >= this.#limits.entries || bytes > this.#limits.bytes) {
        await rm(entry.path, { force: true });
      }
    }
  }

  #pathOf(key: string): string {
    return join(this.#folder, `${key}.tokens`);
  }

  #warn(what: string): void {
    this.#logger.warn(
      `token cache: ${this.#folder} ${what}; set token_cache to another folder or to none`,
    );
  }
}

function errnoOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? String(error);
}

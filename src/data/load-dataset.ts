/**
 * @file Data files as token data sets in memory.
 *
 * Files are found, looked up in the token cache, else tokenised by threads; then split and packed.
 * What a row becomes is row-encoder.ts's and encode-batch.ts's matter.
 */
import { createHash } from 'node:crypto';
import { endianness } from 'node:os';
import { SpillwayError } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import { ArenaDataset } from './arena-dataset.js';
import { hashFiles } from './content-hash.js';
import { findDataFiles } from './data-files.js';
import type { DataFile } from './data-files.js';
import { rowOptionsOf } from './encode-batch.js';
import { PackedDataset } from './packed-dataset.js';
import { ProgressMeter } from './progress-meter.js';
import { RowEncoder } from './row-encoder.js';
import type { RowEncoderOptions } from './row-encoder.js';
import { splitRows } from './split-rows.js';
import { defaultCacheFolder, TokenCache } from './token-cache.js';
import type { DatasetProgress, TokenDataset } from './token-dataset.js';
import { INLINE_BYTES, tokenizeFiles } from './tokenize-files.js';
import type { TokenizedFiles } from './tokenize-files.js';

export type { DatasetProgress, TokenDataset, TokenRow } from './token-dataset.js';

/** What every split is read with. */
interface CommonOptions {
  readonly textField: string;
  /** Rows with prompt and completion train on the completion only; true by default. */
  readonly completionOnlyLoss?: boolean | undefined;
  /** Rows with messages train on the assistant's turns only; false by default. */
  readonly assistantOnlyLoss?: boolean | undefined;
  /** Overrides the folder's template. */
  readonly chatTemplatePath?: string | undefined;
  /** Rows are cut to this number of tokens; sequences of packed rows have at most as many. */
  readonly maxLength: number;
  /** Several rows per sequence; false by default. */
  readonly packing?: boolean | undefined;
  /** Tokenising threads, 1 by default. */
  readonly workers?: number | undefined;
  /**
   * Folder of the token cache. `none` keeps nothing; undefined is the user's cache folder, where
   * only data worth the space are kept (1 MiB of text).
   */
  readonly tokenCache?: string | undefined;
  /** Model folder with tokenizer.json; only read when a row needs it. */
  readonly folder: string;
  /** Token ids are below this. */
  readonly vocabSize: number;
  /** Overrides the folder's. */
  readonly eosTokenId?: number | undefined;
  readonly logger: Logger;
  readonly onProgress?: ((progress: DatasetProgress) => void) | undefined;
  /** Rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** What `loadDataset` reads. */
export interface DatasetOptions extends CommonOptions {
  /** Files and folders. */
  readonly files: readonly string[];
  /** Names keys in messages, and progress; `train` by default. */
  readonly split?: DatasetProgress['split'] | undefined;
}

/** What `loadDatasets` reads. */
export interface DatasetsOptions extends CommonOptions {
  /** Files and folders to train on. */
  readonly files: readonly string[];
  /** Files and folders to evaluate on. */
  readonly evalFiles?: readonly string[] | undefined;
  /** Share or number of rows of `files` to evaluate on instead. */
  readonly evalSplit?: number | undefined;
  /** Draws the rows of `evalSplit`; unsigned 32-bit. */
  readonly seed: number;
}

/**
 * Reads one split.
 *
 * @throws DATA_NOT_FOUND, DATA_INVALID, DATA_EMPTY, TOKENIZER_INVALID, TOKEN_OUT_OF_RANGE, IO_ERROR,
 *   CONFIG_INVALID (no files); WORKER_FAILED; the signal's reason
 */
export async function loadDataset(options: DatasetOptions): Promise<TokenDataset> {
  const { split = 'train' } = options;
  const files = await findFiles(options.files, split);
  const tokens = await loadTokens(options, files, split);
  return finish(options, new ArenaDataset(tokens.arena, tokens), split);
}

/**
 * Reads what a run trains and evaluates on.
 *
 * @throws what `loadDataset` throws; CONFIG_INVALID when both `evalFiles` and `evalSplit` are given
 *   or the split leaves no row to train on
 */
export async function loadDatasets(
  options: DatasetsOptions,
): Promise<{ train: TokenDataset; eval: TokenDataset | undefined }> {
  const { evalFiles, evalSplit } = options;
  if (evalFiles !== undefined && evalSplit !== undefined) {
    throw new SpillwayError(
      'CONFIG_INVALID',
      'eval_files and eval_split are both given; leave one of them out',
    );
  }
  // Both before either is read, which may take long.
  const trainFiles = await findFiles(options.files, 'train');
  const filesOfEval = evalFiles === undefined ? undefined : await findFiles(evalFiles, 'eval');
  const tokens = await loadTokens(options, trainFiles, 'train');
  const { arena } = tokens;
  if (evalSplit !== undefined) {
    const rows = splitRows(arena.length, evalSplit, options.seed);
    const train = new ArenaDataset(arena, tokens, rows.train);
    const none = { truncatedCount: 0, skippedCount: 0 };
    const evaluation = new ArenaDataset(arena, none, rows.eval);
    return {
      train: finish(options, train, 'train'),
      eval: finish(options, evaluation, 'eval'),
    };
  }
  const train = finish(options, new ArenaDataset(arena, tokens), 'train');
  if (filesOfEval === undefined) return { train, eval: undefined };
  const evalTokens = await loadTokens(options, filesOfEval, 'eval', tokens.notes);
  const evaluation = new ArenaDataset(evalTokens.arena, evalTokens);
  return { train, eval: finish(options, evaluation, 'eval') };
}

function keyOf(split: DatasetProgress['split']) {
  return split === 'train' ? 'data_files' : 'eval_files';
}

function findFiles(paths: readonly string[], split: DatasetProgress['split']): Promise<DataFile[]> {
  const key = keyOf(split);
  if (paths.length === 0) {
    throw new SpillwayError('CONFIG_INVALID', `${key} is empty; name a JSONL file or a folder`);
  }
  return findDataFiles(paths, key);
}

/** Packs if wished. */
function finish(
  options: CommonOptions,
  dataset: TokenDataset,
  split: DatasetProgress['split'],
): TokenDataset {
  const { packing = false, maxLength, logger } = options;
  if (!packing) return dataset;
  const packed = new PackedDataset(dataset, maxLength);
  const filled = Math.round((100 * packed.tokenCount) / (packed.length * maxLength));
  logger.info(
    `${labelOf(split)}: ${dataset.length} rows packed into ${packed.length} sequences of max_length ${maxLength}, ${filled} % filled`,
  );
  return packed;
}

/**
 * The rows of `files`, from the cache or by tokenising; tells what there is to tell.
 *
 * @param knownNotes warnings that were given already
 */
async function loadTokens(
  options: CommonOptions,
  files: readonly DataFile[],
  split: DatasetProgress['split'],
  knownNotes: readonly string[] = [],
): Promise<TokenizedFiles> {
  const { logger, maxLength, onProgress } = options;
  const bytesTotal = files.reduce((sum, file) => sum + file.bytes, 0);
  const meter = new ProgressMeter({ split, bytesTotal, onProgress });
  const tokens = await cachedTokens(options, files, meter);
  meter.finish(tokens.lineCount);
  for (const note of tokens.notes) if (!knownNotes.includes(note)) logger.warn(note);
  const { arena, truncatedCount, skippedCount } = tokens;
  if (arena.length === 0) {
    throw new SpillwayError(
      'DATA_EMPTY',
      `no row to ${split === 'train' ? 'train' : 'evaluate'} on; ${keyOf(split)} hold no row with two tokens and a label that counts`,
      { [keyOf(split)]: files.map((file) => file.path), skippedRows: skippedCount },
    );
  }
  const label = labelOf(split);
  if (truncatedCount > 0) {
    logger.info(`${label}: ${truncatedCount} rows cut to max_length ${maxLength}`);
  }
  if (skippedCount > 0) {
    logger.warn(`${label}: ${skippedCount} rows without a label that counts are left out`);
  }
  return tokens;
}

function labelOf(split: DatasetProgress['split']): string {
  return split === 'train' ? 'data' : 'evaluation data';
}

async function cachedTokens(
  options: CommonOptions,
  files: readonly DataFile[],
  meter: ProgressMeter,
): Promise<TokenizedFiles> {
  const { maxLength, vocabSize, workers = 1, logger, signal } = options;
  const { completionOnlyLoss = true, assistantOnlyLoss = false } = options;
  const rowOptions = rowOptionsOf({ ...options, completionOnlyLoss, assistantOnlyLoss });
  const folder = cacheFolder(options, files);
  const tokenize = () =>
    tokenizeFiles({
      files,
      encoder: { ...rowOptions, maxLength, vocabSize },
      workers,
      onBatch: (rows, bytesDone) => {
        meter.report(rows, bytesDone);
      },
      signal,
    });
  if (folder === undefined) return tokenize();
  const cache = new TokenCache(folder, logger);
  const key = cacheKey(await hashFiles(files, signal), await encodingOf(rowOptions), options);
  // What cannot be read is refused by the rows that need it, with a better message.
  if (key === undefined) return tokenize();
  const found = await cache.load(key);
  signal?.throwIfAborted();
  if (found !== undefined) return found;
  const tokens = await tokenize();
  // Data or tokenizer that were written to meanwhile have other rows than the key says.
  const keyOfTokens = cacheKey(tokens.contentHash, await encodingOf(rowOptions), options);
  if (keyOfTokens === key) await cache.store(key, tokens);
  return tokens;
}

/** Identity of tokenizer, template and options; undefined when a file is broken. */
function encodingOf(rowOptions: RowEncoderOptions): Promise<string | undefined> {
  return new RowEncoder(rowOptions).fingerprint().catch(() => undefined);
}

/** To be raised when the same rows come to be kept in another form. */
const CACHE_VERSION = 1;

/** SHA-256 of everything that decides the rows, or undefined when a part is unknown. */
function cacheKey(
  contentHash: string | undefined,
  encoding: string | undefined,
  { maxLength, vocabSize }: CommonOptions,
): string | undefined {
  if (contentHash === undefined || encoding === undefined) return undefined;
  const parts = [CACHE_VERSION, endianness(), contentHash, encoding, maxLength, vocabSize];
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}

/** Undefined where nothing is to be kept. */
function cacheFolder(
  { tokenCache }: CommonOptions,
  files: readonly DataFile[],
): string | undefined {
  if (tokenCache === 'none') return undefined;
  // A pipe can be read once only.
  if (!files.every((file) => file.regular)) return undefined;
  if (tokenCache !== undefined) return tokenCache;
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  return bytes < INLINE_BYTES ? undefined : defaultCacheFolder();
}

/**
 * @file `data_files` and `eval_files` as a list of files.
 *
 * A folder stands for the *.jsonl files in it and below it, sorted by path; names that begin with a
 * dot are passed over, and so are links to folders, so that no cycle is entered. Links to files
 * count: Hugging Face's cache is made of them.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '../../core/errno.js';
import { SpillwayError } from '../../core/errors.js';

/** Where the files were named, for messages. */
export type DataFilesKey = 'data_files' | 'eval_files';

/** A file to read. */
export interface DataFile {
  readonly path: string;
  readonly bytes: number;
  /** False for pipes, which can be read once only and have no size. */
  readonly regular: boolean;
}

/**
 * The files that `paths` stand for, in that order; one that is named twice is read twice.
 *
 * @throws DATA_NOT_FOUND when a path is missing or neither file, folder nor pipe, or a folder holds no
 *   *.jsonl file
 */
export async function findDataFiles(
  paths: readonly string[],
  key: DataFilesKey,
): Promise<DataFile[]> {
  const files: DataFile[] = [];
  for (const path of paths) {
    const status = await statusOf(path, key);
    if (status.isFile() || status.isFIFO()) {
      files.push({ path, bytes: status.size, regular: status.isFile() });
      continue;
    }
    if (!status.isDirectory()) {
      const message = `"${path}" is neither a file, a folder nor a pipe; check ${key}`;
      throw new SpillwayError('DATA_NOT_FOUND', message);
    }
    const found = await jsonlFilesBelow(path, key);
    if (found.length === 0) {
      const message = `the folder "${path}" holds no *.jsonl file; check ${key}`;
      throw new SpillwayError('DATA_NOT_FOUND', message);
    }
    files.push(...found);
  }
  return files;
}

async function jsonlFilesBelow(folder: string, key: DataFilesKey): Promise<DataFile[]> {
  const files: DataFile[] = [];
  const folders = [folder];
  for (let at = folders.pop(); at !== undefined; at = folders.pop()) {
    for (const entry of await entriesOf(at, key)) {
      if (entry.name.startsWith('.')) continue;
      const path = join(at, entry.name);
      if (entry.isDirectory()) folders.push(path);
      else if (entry.name.endsWith('.jsonl')) {
        const status = await statusOf(path, key);
        if (status.isFile()) files.push({ path, bytes: status.size, regular: true });
      }
    }
  }
  // By code units: the same order in every locale.
  return files.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function entriesOf(folder: string, key: DataFilesKey) {
  return readdir(folder, { withFileTypes: true }).catch((error: unknown) => {
    throw notFound(`cannot read the folder "${folder}"`, key, error);
  });
}

function statusOf(path: string, key: DataFilesKey) {
  return stat(path).catch((error: unknown) => {
    throw notFound(`cannot read the data file "${path}"`, key, error);
  });
}

function notFound(message: string, key: DataFilesKey, cause: unknown): SpillwayError {
  const facts = { errno: errnoOf(cause) };
  return new SpillwayError('DATA_NOT_FOUND', `${message}; check ${key}`, facts, cause);
}

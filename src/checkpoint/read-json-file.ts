/**
 * @file A JSON file that must be one object: its size, UTF-8, nesting and keys are checked.
 */
import { isUtf8 } from 'node:buffer';
import { open } from 'node:fs/promises';

import { readError } from './file-errors.js';
import { parseJsonObject, type JsonObject } from './json-object.js';

/**
 * The object in the file at `path`.
 *
 * @param limitBytes size beyond which the file is refused unread: parsing takes a multiple of it
 * @param refuse makes the error from the fact, e.g. "is not valid JSON"
 * @throws MODEL_NOT_FOUND or IO_ERROR when it cannot be read, what `refuse` makes
 */
export async function readJsonFile(
  path: string,
  limitBytes: number,
  refuse: (fact: string, cause?: unknown) => Error,
): Promise<JsonObject> {
  const bytes = await readUpTo(path, limitBytes).catch((error: unknown) => {
    throw readError(path, error);
  });
  if (bytes === undefined) throw refuse(`is larger than ${limitBytes} bytes`);
  if (!isUtf8(bytes)) throw refuse('is not valid UTF-8');
  return parseJsonObject(bytes.toString('utf8'), refuse);
}

/** The file's content, or undefined when it has more than `limitBytes`. */
async function readUpTo(path: string, limitBytes: number): Promise<Buffer | undefined> {
  const handle = await open(path);
  try {
    if ((await handle.stat()).size > limitBytes) return undefined;
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}

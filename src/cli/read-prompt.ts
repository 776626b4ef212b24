/**
 * @file The text that `spillway generate` continues: a flag's, a file's or standard input's.
 */
import { readFile } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { errnoOf } from '../../core/errno.js';
import { SpillwayError } from '../../core/errors.js';

/** Where a prompt may come from. */
export interface PromptSources {
  readonly prompt: string | undefined;
  /** `-` is standard input. */
  readonly promptFile: string | undefined;
}

/** Standard input. */
export type PromptInput = NodeJS.ReadableStream & { readonly isTTY?: boolean };

/**
 * The prompt. A file's or standard input's last line break is no part of it.
 *
 * @throws USAGE_INVALID when it is given twice or not at all, DATA_NOT_FOUND; DATA_INVALID when it
 *   is not UTF-8
 */
export async function readPrompt(
  { prompt, promptFile }: PromptSources,
  input: PromptInput = process.stdin,
): Promise<string> {
  if (prompt !== undefined && promptFile !== undefined) {
    throw new SpillwayError('USAGE_INVALID', 'the prompt is given twice; give one');
  }
  if (prompt !== undefined) return prompt;
  if (promptFile !== undefined && promptFile !== '-') {
    return withoutLastBreak(textOf(await read(promptFile), `prompt_file "${promptFile}"`));
  }
  if (promptFile === undefined && input.isTTY === true) {
    throw new SpillwayError(
      'USAGE_INVALID',
      'there is no prompt; give --prompt, --prompt_file or standard input',
    );
  }
  return withoutLastBreak(textOf(await buffer(input), 'standard input'));
}

async function read(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    const errno = errnoOf(error);
    throw new SpillwayError(
      'DATA_NOT_FOUND',
      `prompt_file "${path}" cannot be read (${errno}); check the path`,
      { path },
      error,
    );
  }
}

/** A byte order mark is no part of a text. */
function textOf(bytes: Buffer, place: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    const message = `${place} is not UTF-8; convert it`;
    throw new SpillwayError('DATA_INVALID', message, {}, error);
  }
}

function withoutLastBreak(content: string): string {
  return content.replace(/\r?\n$/, '');
}

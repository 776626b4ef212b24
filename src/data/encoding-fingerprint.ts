/**
 * @file A hash of everything that decides how lines become ids and labels.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { hasCode } from '../../core/errors.js';
import { loadChatTemplate } from './chat-template.js';
import type { RowEncoderOptions } from './row-encoder.js';
import { strftime } from './strftime.js';

/** To be raised whenever the same files and options come to give other ids or labels. */
const FORMAT_VERSION = 6;

/** The libraries that turn text into ids; a test compares the versions with the installed ones. */
export const ENCODING_LIBRARIES: Readonly<Record<string, string>> = {
  '@huggingface/jinja': '0.5.11',
  '@huggingface/tokenizers': '0.2.0',
};

/** Files whose contents decide the ids of a text. */
const TOKENIZER_FILES = [
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'generation_config.json',
  'config.json',
];

/**
 * SHA-256, in hex. Where the folder stands does not count, what is in it does; a template that
 * writes the date counts the day.
 *
 * @throws TOKENIZER_INVALID when a template's file is broken
 */
export async function encodingFingerprint(options: RowEncoderOptions): Promise<string> {
  const { folder, textField, completionOnlyLoss, assistantOnlyLoss, eosTokenId } = options;
  const parts: string[] = [
    JSON.stringify([FORMAT_VERSION, ENCODING_LIBRARIES]),
    JSON.stringify([textField, completionOnlyLoss, assistantOnlyLoss, eosTokenId ?? null]),
  ];
  for (const name of TOKENIZER_FILES) {
    const contents = await readFile(join(folder, name)).catch(() => undefined);
    parts.push(contents === undefined ? 'absent' : hashOf(contents));
  }
  parts.push(await templateIdentity(options));
  return hashOf(JSON.stringify(parts));
}

async function templateIdentity(options: RowEncoderOptions): Promise<string> {
  try {
    const template = await loadChatTemplate(options.folder, options.chatTemplatePath);
    const day = template.writesDate ? strftime('%F', new Date()) : '';
    return JSON.stringify([[...template.sources], day]);
  } catch (error) {
    // None at all: rows that need one are refused, the others do not depend on it.
    if (hasCode(error, 'DATA_INVALID')) return 'absent';
    throw error;
  }
}

function hashOf(contents: string | Uint8Array): string {
  return createHash('sha256').update(contents).digest('hex');
}

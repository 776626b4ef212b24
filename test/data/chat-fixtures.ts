/**
 * @file The recorded cases of fixtures/chat; its make.py says what they hold.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { ChatMessage } from '../../src/data/parse-row.js';
import { withPythonValues } from '../../src/data/python-values.js';

/** A conversation and what transformers made of it. */
export interface RecordedChat {
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly unknown[] | null;
  readonly variables: Readonly<Record<string, unknown>>;
  readonly error?: string;
  readonly text: string;
  readonly prompt_text: string;
  readonly ids: readonly number[];
  readonly prompt_ids: readonly number[];
  readonly decoded: readonly [string, string];
  /** The row, where its numbers must be read as they are spelled. */
  readonly line?: string;
  /** Absent beside `error`. */
  readonly mask?: readonly number[];
}

/** A prompt and its completion as TRL tokenises them. */
export interface RecordedCompletion {
  readonly prompt: string;
  readonly completion: string;
  readonly ids: readonly number[];
  readonly prompt_ids: readonly number[];
}

/** expected.json of a case. */
export interface RecordedCase {
  readonly chats: readonly RecordedChat[];
  readonly completions: readonly RecordedCompletion[];
}

const ROOT = fileURLToPath(new URL('../../fixtures/chat', import.meta.url));

/** Names of the cases. */
export const CHAT_CASES = readdirSync(ROOT, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name);

/** Folder of a case: a tokenizer with a chat template. */
export function chatFolder(name: string): string {
  return `${ROOT}/${name}`;
}

/** What was recorded for a case. */
export function recordedCase(name: string): RecordedCase {
  const text = readFileSync(`${chatFolder(name)}/expected.json`, 'utf8');
  const { chats, completions } = JSON.parse(text) as RecordedCase;
  return { chats: chats.map(withLine), completions };
}

/** What a row's line says is put beside it. */
function withLine(chat: RecordedChat): RecordedChat {
  const { line } = chat;
  if (line === undefined) return chat;
  const row = withPythonValues(line, JSON.parse(line)) as Pick<RecordedChat, 'messages' | 'tools'>;
  return { ...chat, ...row, variables: {} };
}

/**
 * @file The chat template of a model folder: messages → the text that the model reads.
 *
 * As in transformers: `chat_template.jinja` (with `additional_chat_templates/`) goes before
 * tokenizer_config.json's `chat_template`, that before chat_template.json. Of several named
 * templates "tool_use" serves conversations with tools, "default" all others. Message keys that are
 * null are dropped, and reasoning is there under all its names.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { SpillwayError } from '../../core/errors.js';
import { JinjaProgram } from './jinja-program.js';
import type { GenerationMarks } from './jinja-program.js';
import { orderedEntries, orderedObject } from './ordered-object.js';
import type { ChatMessage } from './parse-row.js';
import { invalidFile, isObject, readJson, readSpecialTokens, readText } from './tokenizer-files.js';

/** How a conversation is rendered. */
export interface RenderOptions {
  /** Ends in the header of an assistant's turn that is still to come. */
  readonly addGenerationPrompt: boolean;
  /** JSON schemas of functions. */
  readonly tools?: readonly unknown[] | undefined;
  /** More variables, such as `documents` or `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
}

/** Characters `start` to `end` (exclusive) of a text, in UTF-16 units. */
export interface TextSpan {
  readonly start: number;
  readonly end: number;
}

/** A text and the parts of it that the assistant writes, in order. */
export interface RenderedChat {
  readonly text: string;
  readonly spans: readonly TextSpan[];
}

const DEFAULT_NAME = 'default';
const TOOLS_NAME = 'tool_use';
const REASONING_FIELDS = ['reasoning_content', 'thinking', 'reasoning'];
const JINJA_ENDING = '.jinja';

/** Private-use characters; the first two that the text does not hold mark generation blocks. */
const FIRST_MARK = 0xe000;
const LAST_MARK = 0xf8ff;

/** Chat template of a folder, parsed. */
export class ChatTemplate {
  /** Where it stands, for messages. */
  readonly path: string;
  /** Sources by name. */
  readonly sources: ReadonlyMap<string, string>;
  readonly #specialTokens: Readonly<Record<string, string>>;
  readonly #programs = new Map<string, JinjaProgram>();

  constructor(
    path: string,
    sources: ReadonlyMap<string, string>,
    specialTokens: Readonly<Record<string, string>>,
  ) {
    this.path = path;
    this.sources = sources;
    this.#specialTokens = specialTokens;
  }

  /** Whether the text depends on the day it is rendered. */
  get writesDate(): boolean {
    return [...this.sources.values()].some((source) => source.includes('strftime_now'));
  }

  /**
   * The text of a conversation.
   *
   * @throws DATA_INVALID when the template refuses the messages; TOKENIZER_INVALID when it is broken
   */
  render(messages: readonly ChatMessage[], options: RenderOptions): string {
    return this.#run(messages, options);
  }

  /**
   * The text with the spans of its `{% generation %}` blocks; undefined: the template has none.
   *
   * @throws as `render`
   */
  renderGenerations(
    messages: readonly ChatMessage[],
    options: RenderOptions,
  ): RenderedChat | undefined {
    if (!this.#program(options).marksGenerations) return undefined;
    const text = this.#run(messages, options);
    // Of bigints only the digits count here.
    const digits = (_: string, value: unknown) =>
      typeof value === 'bigint' ? value.toString() : value;
    const marks = freeMarks([text, JSON.stringify([messages, options], digits)]);
    const marked = this.#run(messages, options, marks);
    const rendered = takeMarks(marked, marks);
    if (rendered?.text !== text) {
      throw this.#refusal('its generation blocks cannot be told apart: what they hold is changed');
    }
    return rendered;
  }

  #run(messages: readonly ChatMessage[], options: RenderOptions, marks?: GenerationMarks): string {
    const program = this.#program(options);
    const variables = {
      ...this.#specialTokens,
      documents: null,
      ...options.variables,
      messages: messages.map(normalMessage),
      tools: options.tools ?? null,
      add_generation_prompt: options.addGenerationPrompt,
    };
    try {
      return program.run(variables, marks);
    } catch (error) {
      throw this.#refusal((error as Error).message, error);
    }
  }

  #program(options: RenderOptions): JinjaProgram {
    const withTools = options.tools !== undefined && this.sources.has(TOOLS_NAME);
    const name = withTools ? TOOLS_NAME : DEFAULT_NAME;
    const known = this.#programs.get(name);
    if (known !== undefined) return known;
    const source = this.sources.get(name);
    if (source === undefined) {
      const names = [...this.sources.keys()].join(', ');
      const message = `has no template "${name}", only ${names}; set chat_template_path`;
      throw new SpillwayError('DATA_INVALID', `${this.path} ${message}`);
    }
    try {
      const program = new JinjaProgram(source);
      this.#programs.set(name, program);
      return program;
    } catch (error) {
      const reason = (error as Error).message;
      throw invalidFile(this.path, `holds a chat template that cannot be used: ${reason}`, error);
    }
  }

  #refusal(reason: string, cause?: unknown): SpillwayError {
    const message = `the chat template of ${this.path} refuses it: ${reason}`;
    return new SpillwayError('DATA_INVALID', message, {}, cause);
  }
}

/**
 * The chat template of `folder`, or of `path`: a .jinja file, or a folder of a tokenizer. The special
 * tokens are `folder`'s in any case.
 *
 * @throws DATA_INVALID when there is none; TOKENIZER_INVALID when a file is broken or `path` missing
 */
export async function loadChatTemplate(folder: string, path?: string): Promise<ChatTemplate> {
  const specialTokens = await readSpecialTokens(folder);
  const place = path ?? folder;
  const sources = (await isFolder(place)) ? await readSources(place) : await readSource(place);
  if (sources === undefined) {
    throw new SpillwayError(
      'DATA_INVALID',
      `"${place}" has no chat template, which messages need; put a chat_template.jinja there, or train with chat_template_path`,
    );
  }
  return new ChatTemplate(place, sources, specialTokens);
}

async function isFolder(path: string): Promise<boolean> {
  const status = await stat(path).catch(() => undefined);
  return status?.isDirectory() === true;
}

async function readSource(path: string): Promise<ReadonlyMap<string, string> | undefined> {
  const source = await readTemplateFile(path);
  if (source !== undefined) return new Map([[DEFAULT_NAME, source]]);
  throw invalidFile(path, 'does not exist; check chat_template_path');
}

async function readSources(folder: string): Promise<ReadonlyMap<string, string> | undefined> {
  const files = await readTemplateFiles(folder);
  if (files.size > 0) return files;
  for (const name of ['tokenizer_config.json', 'chat_template.json']) {
    const path = join(folder, name);
    const value = (await readJson(path))?.['chat_template'];
    if (value !== undefined && value !== null) return namedSources(path, value);
  }
  return undefined;
}

async function readTemplateFiles(folder: string): Promise<ReadonlyMap<string, string>> {
  const sources = new Map<string, string>();
  const source = await readTemplateFile(join(folder, `chat_template${JINJA_ENDING}`));
  if (source !== undefined) sources.set(DEFAULT_NAME, source);
  const more = join(folder, 'additional_chat_templates');
  for (const name of (await readdir(more).catch(() => [])).sort()) {
    if (!name.endsWith(JINJA_ENDING)) continue;
    const text = await readTemplateFile(join(more, name));
    if (text !== undefined) sources.set(name.slice(0, -JINJA_ENDING.length), text);
  }
  return sources;
}

async function readTemplateFile(path: string): Promise<string | undefined> {
  const text = await readText(path);
  return text?.startsWith('\uFEFF') === true ? text.slice(1) : text;
}

/** A template, or a list of {"name", "template"}. */
function namedSources(path: string, value: unknown): ReadonlyMap<string, string> {
  if (typeof value === 'string') return new Map([[DEFAULT_NAME, value]]);
  const sources = new Map<string, string>();
  for (const item of Array.isArray(value) ? (value as unknown[]) : []) {
    const { name, template } = isObject(item) ? item : {};
    if (typeof name === 'string' && typeof template === 'string') sources.set(name, template);
  }
  if (sources.size > 0) return sources;
  throw invalidFile(path, 'has a chat_template that is neither text nor a list of named templates');
}

/** transformers' view of a message. */
function normalMessage(message: ChatMessage): Readonly<Record<string, unknown>> {
  const entries = orderedEntries(message).filter(([, value]) => value !== null);
  const normal = orderedObject(entries);
  const field = REASONING_FIELDS.find((name) => normal[name] !== undefined);
  if (field === undefined) return normal;
  const reasoning = normal[field];
  return orderedObject([['thinking', reasoning], ...entries, ['reasoning_content', reasoning]]);
}

function freeMarks(texts: readonly string[]): GenerationMarks {
  const free: string[] = [];
  for (let code = FIRST_MARK; code <= LAST_MARK && free.length < 2; code += 1) {
    const mark = String.fromCharCode(code);
    if (!texts.some((text) => text.includes(mark))) free.push(mark);
  }
  const [open, close] = free;
  if (open !== undefined && close !== undefined) return { open, close };
  throw new SpillwayError('DATA_INVALID', 'the messages hold every private-use character');
}

/** Takes the marks out again; undefined when they are not in pairs. */
function takeMarks(marked: string, { open, close }: GenerationMarks): RenderedChat | undefined {
  const spans: TextSpan[] = [];
  let text = '';
  let at = 0;
  for (;;) {
    const start = marked.indexOf(open, at);
    if (start < 0) break;
    const end = marked.indexOf(close, start);
    if (end < 0) return undefined;
    text += marked.slice(at, start);
    const span = marked.slice(start + 1, end);
    spans.push({ start: text.length, end: text.length + span.length });
    text += span;
    at = end + 1;
  }
  return { text: text + marked.slice(at), spans };
}

/**
 * @file Which characters of a rendered conversation the assistant writes.
 *
 * A template with `{% generation %}` says so itself. Any other is rendered up to each assistant
 * message, once ending before it with the generation prompt and once ending after it: what the
 * second adds to the first is the turn. That holds where rendering is prefix-stable, which each
 * turn checks; a template that writes earlier turns differently later on is refused.
 *
 * The generation prompt is the header of a turn, which is not trained on. Templates do not give it
 * everywhere (some not after tools, some not for an empty conversation); there it is what they give
 * after a user's message, and must be found in its place, or the row is refused.
 */
import { SpillwayError, isCoded } from '../../core/errors.js';
import type { ChatTemplate, RenderedChat, RenderOptions, TextSpan } from './chat-template.js';
import type { ChatMessage } from './parse-row.js';

/** The role whose turns are trained on. */
const ASSISTANT = 'assistant';
const USER = 'user';

/** A conversation that shows what a template writes in front of an answer. */
const SAMPLE: readonly ChatMessage[] = [
  { role: USER, content: 'question' },
  { role: ASSISTANT, content: 'answer' },
];

/** The text and its assistant spans. @throws DATA_INVALID, TOKENIZER_INVALID */
export function renderAssistantSpans(
  template: ChatTemplate,
  messages: readonly ChatMessage[],
  options: RenderOptions,
): RenderedChat {
  const marked = template.renderGenerations(messages, options);
  if (marked !== undefined) return marked;
  const finder = new TurnFinder(template, messages, options);
  const text = template.render(messages, options);
  const spans: TextSpan[] = [];
  messages.forEach((message, index) => {
    if (message.role === ASSISTANT) spans.push(finder.span(index, text));
  });
  return { text, spans };
}

/** Finds assistant turns of one conversation. */
class TurnFinder {
  readonly #template: ChatTemplate;
  readonly #messages: readonly ChatMessage[];
  readonly #options: RenderOptions;
  #header: { readonly text: string | undefined } | undefined;

  constructor(template: ChatTemplate, messages: readonly ChatMessage[], options: RenderOptions) {
    this.#template = template;
    this.#messages = messages;
    this.#options = options;
  }

  /** The turn of message `index` in the conversation's `text`. */
  span(index: number, text: string): TextSpan {
    const upTo = this.#render(this.#messages.slice(0, index + 1), false);
    if (!text.startsWith(upTo)) throw this.#unstable(index);
    const start = index === 0 ? this.#firstStart(upTo) : this.#laterStart(index, upTo);
    return { start, end: upTo.length };
  }

  #laterStart(index: number, upTo: string): number {
    const before = this.#messages.slice(0, index);
    const prior = this.#render(before, false);
    const prompt = this.#render(before, true);
    if (prompt !== prior) {
      if (!upTo.startsWith(prompt)) throw this.#unstable(index);
      return prompt.length;
    }
    const header = this.#usualHeader(index);
    if (!upTo.startsWith(prior)) throw this.#unstable(index);
    if (!upTo.startsWith(header, prior.length)) throw this.#unclear(index);
    return prior.length + header.length;
  }

  /** The conversation begins with the turn: many templates refuse to render what is before it. */
  #firstStart(upTo: string): number {
    const header = this.#usualHeader(0);
    const prior = this.#tryRender([], false);
    if (prior !== undefined && upTo.startsWith(prior + header)) return prior.length + header.length;
    // A template may begin with a system message of its own.
    const at = upTo.indexOf(header);
    if (header === '' || at < 0 || upTo.includes(header, at + 1)) throw this.#unclear(0);
    return at + header.length;
  }

  /** What the template writes in front of an answer to a user; often the same everywhere. */
  #usualHeader(index: number): string {
    this.#header ??= { text: this.#findHeader() };
    if (this.#header.text === undefined) throw this.#unclear(index);
    return this.#header.text;
  }

  #findHeader(): string | undefined {
    const user = this.#messages.findIndex((message) => message.role === USER);
    const own = user < 0 ? undefined : this.#promptAfter(this.#messages.slice(0, user + 1));
    const question = SAMPLE.slice(0, 1);
    const header = [own, this.#promptAfter(question)].find((text) => Boolean(text));
    if (header !== undefined) return header;
    // No generation prompt at all: either there are no headers, or only turns have them.
    const prior = this.#tryRender(question, false);
    const answered = this.#tryRender(SAMPLE, false);
    if (prior === undefined || answered?.startsWith(prior) !== true) return undefined;
    const answer = answered.indexOf('answer', prior.length);
    return answer >= 0 && answered.slice(prior.length, answer).trim() === '' ? '' : undefined;
  }

  #promptAfter(messages: readonly ChatMessage[]): string | undefined {
    const without = this.#tryRender(messages, false);
    const prompt = this.#tryRender(messages, true);
    if (without === undefined || prompt?.startsWith(without) !== true) return undefined;
    return prompt.slice(without.length);
  }

  #render(messages: readonly ChatMessage[], addGenerationPrompt: boolean): string {
    return this.#template.render(messages, { ...this.#options, addGenerationPrompt });
  }

  /** Undefined where the template refuses the messages. */
  #tryRender(messages: readonly ChatMessage[], addGenerationPrompt: boolean): string | undefined {
    try {
      return this.#render(messages, addGenerationPrompt);
    } catch (error) {
      if (isCoded(error) && error.code === 'DATA_INVALID') return undefined;
      throw error;
    }
  }

  #unstable(index: number): SpillwayError {
    return this.#refusal(index, `writes message ${index} differently when others follow`);
  }

  #unclear(index: number): SpillwayError {
    return this.#refusal(index, `does not show where the header of message ${index} ends`);
  }

  #refusal(index: number, fact: string): SpillwayError {
    return new SpillwayError(
      'DATA_INVALID',
      `the chat template of ${this.#template.path} ${fact}, so the assistant's part is unknown; set chat_template_path to a template with {% generation %} blocks`,
      { message: index },
    );
  }
}

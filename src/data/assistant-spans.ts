/**
 * @file Which characters of a rendered conversation the assistant writes.
 *
 * A template with `{% generation %}` says so itself. Any other is rendered up to each assistant
 * message, once ending before it with the generation prompt and once ending after it: what the
 * second adds to the first is the turn. That holds where rendering is prefix-stable, which each
 * turn checks; a template that writes earlier turns differently later on is refused.
 */
import { SpillwayError } from '../../core/errors.js';
import type { ChatTemplate, RenderedChat, RenderOptions, TextSpan } from './chat-template.js';
import type { ChatMessage } from './parse-row.js';

/** The role whose turns are trained on. */
const ASSISTANT = 'assistant';

/** The text and its assistant spans. @throws DATA_INVALID, TOKENIZER_INVALID */
export function renderAssistantSpans(
  template: ChatTemplate,
  messages: readonly ChatMessage[],
  options: RenderOptions,
): RenderedChat {
  const marked = template.renderGenerations(messages, options);
  if (marked !== undefined) return marked;
  const text = template.render(messages, options);
  const spans: TextSpan[] = [];
  messages.forEach((message, index) => {
    if (message.role !== ASSISTANT) return;
    const before = template.render(messages.slice(0, index), {
      ...options,
      addGenerationPrompt: true,
    });
    const upTo = template.render(messages.slice(0, index + 1), options);
    if (!upTo.startsWith(before) || !text.startsWith(upTo)) throw unstable(template, index);
    spans.push({ start: before.length, end: upTo.length });
  });
  return { text, spans };
}

function unstable(template: ChatTemplate, index: number): SpillwayError {
  return new SpillwayError(
    'DATA_INVALID',
    `the chat template of ${template.path} writes message ${index} differently when others follow, so the assistant's part is unknown; set chat_template_path to a template with {% generation %} blocks`,
    { message: index },
  );
}

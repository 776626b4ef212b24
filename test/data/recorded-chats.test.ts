// Goal: texts, ids, masks and decoded texts of conversations equal transformers' on every recorded case.
import { describe, expect, it } from 'vitest';
import { loadChatTemplate } from '../../src/data/chat-template.js';
import { RowEncoder } from '../../src/data/row-encoder.js';
import type { RowEncoderOptions } from '../../src/data/row-encoder.js';
import { loadTokenizer } from '../../src/data/text-tokenizer.js';
import { CHAT_CASES, chatFolder, recordedCase } from './chat-fixtures.js';
import type { RecordedChat } from './chat-fixtures.js';
import { failureOf } from './temporary-files.js';

function encoder(name: string, more: Partial<RowEncoderOptions> = {}): RowEncoder {
  return new RowEncoder({
    folder: chatFolder(name),
    textField: 'text',
    completionOnlyLoss: true,
    assistantOnlyLoss: false,
    ...more,
  });
}

function lineOf(row: unknown) {
  return { place: 'rows.jsonl:7', text: JSON.stringify(row) };
}

function chatLineOf({ messages, tools, variables, line }: RecordedChat) {
  if (line !== undefined) return { place: 'rows.jsonl:7', text: line };
  return lineOf({ messages, tools, chat_template_kwargs: variables });
}

function labelsOf(ids: readonly number[], mask: readonly number[]) {
  return ids.map((id, index) => (mask[index] === 1 ? id : -100));
}

it('there are the shapes of ten templates, with refusals and masks among them', () => {
  expect(CHAT_CASES.length).toBeGreaterThanOrEqual(10);
  const chats = CHAT_CASES.flatMap((name) => recordedCase(name).chats);
  expect(chats.filter((chat) => chat.error !== undefined).length).toBeGreaterThanOrEqual(3);
  expect(chats.filter((chat) => chat.mask?.includes(1)).length).toBeGreaterThanOrEqual(80);
});

describe.each(CHAT_CASES)('%s', (name) => {
  const { chats, completions } = recordedCase(name);

  it('has the recorded texts, with and without generation prompt', async () => {
    const template = await loadChatTemplate(chatFolder(name));
    for (const { messages, tools, variables, error, text, prompt_text } of chats) {
      const render = (addGenerationPrompt: boolean) =>
        template.render(messages, { addGenerationPrompt, tools: tools ?? undefined, variables });
      if (error !== undefined) {
        expect(() => render(false)).toThrow(error);
        continue;
      }
      expect(render(false)).toBe(text);
      expect(render(true)).toBe(prompt_text);
    }
  });

  it('has the recorded ids, both ways', async () => {
    const encode = encoder(name);
    const tokenizer = await loadTokenizer(chatFolder(name));
    for (const chat of chats) {
      if (chat.error !== undefined) {
        const refused = await failureOf(() => encode.encode(chatLineOf(chat)));
        expect(refused.code).toBe('DATA_INVALID');
        expect(refused.message).toContain(`rows.jsonl:7: `);
        expect(refused.message).toContain(chat.error);
        continue;
      }
      const { inputIds, labels } = await encode.encode(chatLineOf(chat));
      expect(inputIds).toEqual(chat.ids);
      expect(labels).toBeUndefined();
      const prompt = tokenizer.encode(chat.prompt_text, { addSpecialTokens: false });
      expect(prompt).toEqual(chat.prompt_ids);
    }
  });

  it('has the recorded assistant masks', async () => {
    const encode = encoder(name, { assistantOnlyLoss: true });
    for (const chat of chats.filter((each) => each.error === undefined)) {
      const { inputIds, labels } = await encode.encode(chatLineOf(chat));
      expect(inputIds).toEqual(chat.ids);
      expect(labels).toEqual(labelsOf(chat.ids, chat.mask!));
    }
  });

  it('decodes the recorded ids to the recorded texts', async () => {
    const tokenizer = await loadTokenizer(chatFolder(name));
    for (const { ids, decoded, error } of chats) {
      if (error !== undefined) continue;
      expect(tokenizer.decode(ids)).toBe(decoded[0]);
      expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe(decoded[1]);
    }
  });

  it('trains on completions from the first id that the prompt alone does not have', async () => {
    for (const completionOnlyLoss of [true, false]) {
      const encode = encoder(name, { completionOnlyLoss });
      for (const { prompt, completion, ids, prompt_ids } of completions) {
        const { inputIds, labels } = await encode.encode(lineOf({ prompt, completion }));
        expect(inputIds).toEqual(ids);
        const differing = prompt_ids.findIndex((id, index) => id !== ids[index]);
        const start = differing < 0 ? prompt_ids.length : differing;
        const mask = ids.map((_, index) => (index < start ? 0 : 1));
        expect(labels).toEqual(completionOnlyLoss ? labelsOf(ids, mask) : undefined);
      }
      const merged = completions.some(({ ids, prompt_ids }) =>
        prompt_ids.some((id, index) => id !== ids[index]),
      );
      expect(encode.notes.size).toBe(merged && completionOnlyLoss ? 1 : 0);
    }
  });

  it('trains on the messages of a completion, after the generation prompt', async () => {
    const encode = encoder(name);
    const both = encoder(name, { assistantOnlyLoss: true });
    const [chat] = chats;
    const prompt = chat!.messages.slice(0, 1);
    const completion = chat!.messages.slice(1);
    const template = await loadChatTemplate(chatFolder(name));
    const tokenizer = await loadTokenizer(chatFolder(name));
    const promptText = template.render(prompt, { addGenerationPrompt: true });
    const before = tokenizer.encode(promptText, { addSpecialTokens: false });
    const differing = before.findIndex((id, index) => id !== chat!.ids[index]);
    const start = differing < 0 ? before.length : differing;
    expect(start).toBeGreaterThanOrEqual(before.length - 1);
    const mask = chat!.ids.map((_, index) => (index < start ? 0 : 1));
    const row = await encode.encode(lineOf({ prompt, completion }));
    expect(row).toEqual({ inputIds: chat!.ids, labels: labelsOf(chat!.ids, mask) });
    const joint = mask.map((bit, index) => bit & chat!.mask![index]!);
    const masked = await both.encode(lineOf({ prompt, completion }));
    expect(masked).toEqual({ inputIds: chat!.ids, labels: labelsOf(chat!.ids, joint) });
  });
});

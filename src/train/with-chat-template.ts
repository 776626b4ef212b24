/**
 * @file A model that is saved with the chat template it is trained on.
 *
 * `chat_template_path` stands in for the model folder's template; who chats with the trained model,
 * here or in transformers, needs it beside the weights. As in TRL it becomes the tokenizer's only
 * template. `chat_template.jinja` goes before a template in tokenizer_config.json, everywhere.
 */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { PretrainedModel } from '../checkpoint/load-pretrained.js';
import { loadChatTemplate } from '../data/chat-template.js';

const MAIN_NAME = 'default';
const FILE_NAME = 'chat_template.jinja';
const MORE_NAME = 'additional_chat_templates';

/**
 * `model`, saved with the template at `path`; with `path` undefined `model` itself.
 *
 * @throws DATA_INVALID when `path` has no template; TOKENIZER_INVALID when it is missing or broken
 */
export async function withChatTemplate(
  model: PretrainedModel,
  path: string | undefined,
): Promise<PretrainedModel> {
  if (path === undefined) return model;
  const { sources } = await loadChatTemplate(model.folder, path);
  return {
    ...model,
    writeCompanions: async (target) => {
      await model.writeCompanions(target);
      await writeTemplates(target, sources);
    },
  };
}

async function writeTemplates(target: string, sources: ReadonlyMap<string, string>): Promise<void> {
  const more = join(target, MORE_NAME);
  for (const old of [more, join(target, FILE_NAME)]) {
    await rm(old, { recursive: true, force: true });
  }
  for (const [name, source] of sources) {
    if (name !== MAIN_NAME) await mkdir(more, { recursive: true });
    await writeFile(
      name === MAIN_NAME ? join(target, FILE_NAME) : join(more, `${name}.jinja`),
      source,
    );
  }
}

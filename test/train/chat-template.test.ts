// Goal: what a run saves has the chat template that it trained on, and no other.
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { loadChatTemplate } from '../../src/data/chat-template.js';
import { TINY_MODEL, cyclicRows, train, workFolder, writeJsonl } from './train-run.js';

const OLD = '{{ messages[0].content }}';
const NEW = '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}\n';

/** A model folder with templates of its own. */
function modelFolder(work: string): string {
  const folder = join(work, 'model');
  cpSync(TINY_MODEL, folder, { recursive: true });
  mkdirSync(join(folder, 'additional_chat_templates'));
  writeFileSync(join(folder, 'chat_template.jinja'), OLD);
  writeFileSync(join(folder, 'additional_chat_templates', 'rag.jinja'), OLD);
  return folder;
}

async function templatesOf(folder: string): Promise<object> {
  return Object.fromEntries((await loadChatTemplate(folder)).sources);
}

it('is that of chat_template_path in checkpoints, resumed runs and the final model', async () => {
  const work = workFolder();
  const keys = {
    model_name_or_path: modelFolder(work),
    data_files: writeJsonl(join(work, 'rows.jsonl'), cyclicRows(4)),
    output_dir: join(work, 'out'),
    max_steps: 2,
    save_steps: 1,
    eval_split: 1,
    eval_strategy: 'steps',
    eval_steps: 1,
    load_best_model_at_end: true,
  };
  await train({ ...keys, output_dir: join(work, 'own') });
  expect(await templatesOf(join(work, 'own'))).toEqual({ default: OLD, rag: OLD });

  const path = join(work, 'new.jinja');
  writeFileSync(path, NEW);
  await train({ ...keys, chat_template_path: path });
  const resumed = join(work, 'resumed');
  const from = join(work, 'out', 'checkpoint-1');
  await train({
    ...keys,
    chat_template_path: path,
    output_dir: resumed,
    resume_from_checkpoint: from,
    load_best_model_at_end: false,
  });
  for (const folder of [from, join(work, 'out'), join(resumed, 'checkpoint-2'), resumed]) {
    expect(readFileSync(join(folder, 'chat_template.jinja'), 'utf8')).toBe(NEW);
    expect(await templatesOf(folder)).toEqual({ default: NEW });
  }

  const named = join(work, 'named');
  mkdirSync(named);
  const list = [
    { name: 'default', template: NEW },
    { name: 'tool_use', template: OLD },
  ];
  writeFileSync(join(named, 'tokenizer_config.json'), JSON.stringify({ chat_template: list }));
  await train({ ...keys, chat_template_path: named, output_dir: join(work, 'three') });
  expect(await templatesOf(join(work, 'three'))).toEqual({ default: NEW, tool_use: OLD });
});

it('is refused before anything is written where it is missing, whatever the rows', async () => {
  const work = workFolder();
  const run = train({
    model_name_or_path: TINY_MODEL,
    data_files: writeJsonl(join(work, 'rows.jsonl'), cyclicRows(2)),
    output_dir: join(work, 'out'),
    max_steps: 1,
    chat_template_path: join(work, 'nothing.jinja'),
  });
  await expect(run).rejects.toMatchObject({ code: 'TOKENIZER_INVALID' });
  expect(existsSync(join(work, 'out'))).toBe(false);
});

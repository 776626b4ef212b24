// Goal: spillway generate takes a prompt from where it is given, obeys flags and generation_config,
// ends for the right reason, and refuses by name what it cannot do.
import { spawn } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { GenerateReport } from '../../src/generate/run-generate.js';
import { runGenerateCommand } from '../../src/cli/generate-command.js';
import { runCli } from '../../src/cli/run-cli.js';
import type { PromptInput } from '../../src/cli/read-prompt.js';
import { makeGenerationFolder, type GenerationFolder } from './generation-folder.js';

let model: GenerationFolder;
beforeAll(async () => {
  model = await makeGenerationFolder();
});
afterAll(() => model.remove());

interface Run {
  readonly status: number;
  readonly output: string;
  readonly notes: readonly string[];
}

async function generate(
  args: readonly string[],
  options: { json?: boolean; stdin?: PromptInput; onWrite?: (text: string) => void } = {},
): Promise<Run> {
  let output = '';
  const notes: string[] = [];
  const status = await runGenerateCommand(args, {
    json: options.json ?? false,
    ...(options.stdin === undefined ? {} : { stdin: options.stdin }),
    write: (text) => {
      output += text;
      options.onWrite?.(text);
    },
    logger: { info: (note) => void notes.push(note), warn: (note) => void notes.push(note) },
  });
  return { status, output, notes };
}

async function report(...flags: string[]): Promise<GenerateReport> {
  const { output } = await generate([model.folder, '--prompt', 'Hi', ...flags], { json: true });
  return JSON.parse(output) as GenerateReport;
}

const input = (text: string): PromptInput => Readable.from([Buffer.from(text)]);

describe('generate', () => {
  it('writes the text that its report holds, and says how it went', async () => {
    const told = await report('--max_new_tokens', '12');
    expect(told).toMatchObject({ prompt: 'Hi', finish_reason: 'length', prompt_tokens: 2 });
    expect(told.ids).toHaveLength(12);
    expect(told.tokens_per_second).toBeGreaterThan(0);
    const pieces: string[] = [];
    const args = [model.folder, '--prompt', 'Hi', '--max-new-tokens=12'];
    const shown = await generate(args, { onWrite: (text) => pieces.push(text) });
    expect(shown.output).toBe(`${told.completion}\n`);
    expect(pieces.length).toBeGreaterThan(3);
    expect(shown.notes.join()).toMatch(/2 tokens read .* 12 added .* ended by length/);
  });

  it('takes the prompt from a file or standard input, without its last line break', async () => {
    const expected = (await generate([model.folder, '--prompt', 'a\nb'])).output;
    writeFileSync(model.path('prompt.txt'), 'a\nb\n');
    const fromFile = await generate([model.folder, '--prompt_file', model.path('prompt.txt')]);
    const fromDash = await generate([model.folder, '-'], { stdin: input('a\nb\r\n') });
    const fromPipe = await generate([model.folder], { stdin: input('a\nb') });
    expect([fromFile, fromDash, fromPipe].map(({ output }) => output)).toEqual(
      Array(3).fill(expected),
    );
  });

  it('renders the folder\u2019s chat template around a user\u2019s message', async () => {
    writeFileSync(
      `${model.folder}/chat_template.jinja`,
      '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}',
    );
    const chat = await report('--chat', '--max_new_tokens', '4');
    const plain = await generate([model.folder, '--prompt', '<user>Hi<a>', '--max_new_tokens=4']);
    expect(chat.prompt_tokens).toBe('<user>Hi<a>'.length);
    expect(`${chat.completion}\n`).toBe(plain.output);
  });

  it('draws the same text for the same seed, and another for another', async () => {
    const flags = ['--do_sample', '--max_new_tokens', '16', '--temperature', '1.5', '--seed'];
    const [first, again, other] = [
      await report(...flags, '3'),
      await report(...flags, '3'),
      await report(...flags, '4'),
    ];
    expect(again.ids).toEqual(first.ids);
    expect(other.ids).not.toEqual(first.ids);
  });

  it('says which flags decide nothing without sampling', async () => {
    const { notes } = await generate([model.folder, '--prompt', 'Hi', '--top_p', '0.5']);
    expect(notes.join()).toContain('top_p');
  });

  it('ends before a stop string', async () => {
    const { completion } = await report('--max_new_tokens', '20');
    const stop = completion.slice(5, 7);
    const stopped = await report('--max_new_tokens', '20', '--stop', JSON.stringify([stop]));
    expect(stopped.finish_reason).toBe('stop');
    expect(stopped.completion).toBe(completion.slice(0, completion.indexOf(stop)));
  });

  it('ends where the model has no more positions, and warns of it', async () => {
    const args = [model.folder, '--prompt', 'Hi', '--max_new_tokens', '500'];
    const { notes } = await generate(args);
    expect(notes[0]).toContain('64 positions');
    const { finish_reason: reason, ids } = await report('--max_new_tokens', '500');
    expect([reason, ids.length]).toEqual(['context', 62]);
  });

  it('obeys generation_config.json, and flags before it', async () => {
    const { ids } = await report('--max_new_tokens', '9');
    model.patch('generation_config.json', {
      max_new_tokens: 9,
      eos_token_id: [259, ids[4]],
      num_beams: 4,
    });
    try {
      const { notes } = await generate([model.folder, '--prompt', 'Hi']);
      expect(notes.join()).toContain('num_beams');
      const told = await report();
      expect(told.finish_reason).toBe('eos');
      expect(told.ids).toEqual(ids.slice(0, ids.indexOf(ids[4]!)));
      const short = await report('--max_new_tokens', '1');
      expect(short).toMatchObject({ finish_reason: 'length', ids: ids.slice(0, 1) });
      model.patch('generation_config.json', { top_p: 7 });
      await expect(report()).rejects.toMatchObject({ code: 'MODEL_CONFIG_INVALID' });
    } finally {
      model.patch('generation_config.json', {
        max_new_tokens: null,
        eos_token_id: null,
        num_beams: null,
        top_p: null,
      });
    }
  });

  it('stops at SIGINT with what was written, and returns 130', async () => {
    let asked = false;
    const { status, output, notes } = await generate([model.folder, '--prompt', 'Hi'], {
      onWrite: () => {
        // Once: the second would end the process.
        if (!asked) process.emit('SIGINT', 'SIGINT');
        asked = true;
      },
    });
    expect(process.listenerCount('SIGINT')).toBe(0);
    expect(status).toBe(130);
    expect(output.length).toBeGreaterThan(1);
    expect(output.length).toBeLessThan(10);
    expect(notes.join()).toContain('ended by interrupted');
  });

  it('runs under the smallest budgets that a refusal names, with the same text', async () => {
    const flags = ['--max_new_tokens', '8', '--nvme_path', model.path('nvme')];
    const refused = await report(...flags, '--device_memory', '1', '--host_memory', '1').catch(
      (error: unknown) => error as { code: string; message: string; facts: Record<string, number> },
    );
    if (!('facts' in refused)) throw new Error('it ran');
    expect(refused.code).toBe('BUDGET_TOO_SMALL');
    expect(refused.message).toContain('keys and values of 10 tokens');
    const { neededDeviceBytes: device, neededHostBytes: host } = refused.facts;
    const budgets = ['--device_memory', `${device}`, '--host_memory', `${host}`];
    const least = await report(...flags, ...budgets);
    const expected = await report('--max_new_tokens', '8');
    expect(least.ids).toEqual(expected.ids);
    expect(least.peak_bytes.device).toBeLessThanOrEqual(device!);
    expect(least.bytes_moved.nvme_read).toBeGreaterThan(0);
  });
});

it('ends in order when nobody reads any longer, and leaves nothing on NVMe', async () => {
  const long = await makeGenerationFolder();
  long.patch('config.json', { max_position_embeddings: 4096 });
  const nvmePath = long.path('nvme');
  const args = ['--import', 'tsx', 'src/cli/main.ts', 'generate', long.folder, '--prompt', 'Hi'];
  const flags = ['--max_new_tokens', '4000', '--offload_param.device', 'nvme'];
  const child = spawn(process.execPath, [...args, ...flags, '--nvme_path', nvmePath], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let notes = '';
  child.stderr.on('data', (data: Buffer) => (notes += data.toString()));
  child.stdout.once('data', () => child.stdout.destroy());
  const status = await new Promise((resolve) => child.on('close', resolve));
  const left = readdirSync(nvmePath);
  long.remove();
  expect(notes).toContain('ended by interrupted');
  expect([status, left]).toEqual([0, []]);
}, 30_000);

describe('generate refuses', () => {
  it.each<[string, () => Promise<unknown>, string]>([
    ['no model', () => generate([]), 'USAGE_INVALID'],
    ['two models', () => generate([model.folder, 'other', '--prompt', 'a']), 'USAGE_INVALID'],
    [
      'two prompts',
      () => generate([model.folder, '--prompt', 'a', '--prompt_file', 'b']),
      'USAGE_INVALID',
    ],
    [
      'no prompt on a terminal',
      () => generate([model.folder], { stdin: Object.assign(input(''), { isTTY: true }) }),
      'USAGE_INVALID',
    ],
    ['an empty prompt', () => generate([model.folder], { stdin: input('') }), 'DATA_EMPTY'],
    [
      'a prompt file that is not there',
      () => generate([model.folder, '--prompt_file', model.path('none')]),
      'DATA_NOT_FOUND',
    ],
    [
      'a prompt that is not UTF-8',
      () =>
        generate([model.folder], { stdin: Readable.from([Buffer.from('caf\u00e9', 'latin1')]) }),
      'DATA_INVALID',
    ],
    [
      'a prompt that fills the positions',
      () => generate([model.folder, '--prompt', 'a'.repeat(64)]),
      'DATA_INVALID',
    ],
    ['an unknown flag', () => report('--max_new_token', '3'), 'CONFIG_UNKNOWN_KEY'],
    ['a temperature of 0', () => report('--temperature', '0'), 'CONFIG_INVALID'],
    ['a top_p above 1', () => report('--top_p', '1.5'), 'CONFIG_INVALID'],
    ['no tokens', () => report('--max_new_tokens', '0'), 'CONFIG_INVALID'],
    ['a broken list of stops', () => report('--stop', '["a"'), 'CONFIG_INVALID'],
    [
      'a folder that is not there',
      () => generate([model.path('none'), '--prompt', 'a']),
      'MODEL_NOT_FOUND',
    ],
  ])('%s', async (_, act, code) => {
    await expect(act()).rejects.toMatchObject({ code });
  });

  it('a conversation where the folder has no chat template', async () => {
    const other = await makeGenerationFolder();
    const refused = generate([other.folder, '--prompt', 'a', '--chat']);
    await expect(refused.finally(() => other.remove())).rejects.toMatchObject({
      code: 'DATA_INVALID',
    });
  });
});

it.each([
  ['--model_name_or_path', 'model_name_or_path'],
  ['--offload-optimizer.device=cpu', 'offload_optimizer.device'],
])('generate says that %s is a key of train', async (flag, key) => {
  const refused = generate([flag, 'x', '--prompt', 'a']);
  await expect(refused).rejects.toMatchObject({
    code: 'CONFIG_UNKNOWN_KEY',
    message: expect.stringMatching(`^${key} is a key of train, .* folder as an argument`) as string,
  });
});

it('the command line passes flags through', async () => {
  const refused = runCli(['generate', model.folder, '--prompt', 'a', '--json', '--top_q', '1']);
  await expect(refused).rejects.toMatchObject({ code: 'CONFIG_UNKNOWN_KEY' });
});

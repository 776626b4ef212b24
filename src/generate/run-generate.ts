/**
 * @file `spillway generate`: from flags to text that appears as it comes.
 */
import type { Logger } from '../../core/logger.js';
import type { Link, Tier } from '../../core/types.js';
import type { ValuesOf } from '../config/config-key.js';
import type { GENERATE_KEYS } from '../config/keys/generate-keys.js';
import type { FinishReason } from './generate-tokens.js';
import { overridden, type GenerationOverrides } from './generation-settings.js';
import { Generator, type GenerateOptions, type GenerationResult } from './generator.js';
import type { Prompt } from './generator-folder.js';

/** Flags, typed. */
export type GenerateFlags = ValuesOf<typeof GENERATE_KEYS>;

/** What a run works with. */
export interface RunGenerateOptions {
  readonly logger: Logger;
  /** Receives the completion's text, whole characters. */
  readonly write: (text: string) => void;
  /** Ends it between tokens. */
  readonly signal: AbortSignal;
}

/** How a run ended; what `--json` prints, in its spelling. */
export interface GenerateReport {
  readonly prompt: string;
  readonly completion: string;
  /** Of the completion. */
  readonly ids: readonly number[];
  readonly finish_reason: FinishReason;
  readonly prompt_tokens: number;
  /** Until the first token, loading excluded. */
  readonly prompt_seconds: number;
  /** After the first token. */
  readonly tokens_per_second: number;
  readonly peak_bytes: Readonly<Record<Tier, number>>;
  readonly budget_bytes: Readonly<Record<Tier, number>>;
  readonly bytes_moved: Readonly<Record<Link, number>>;
}

/**
 * Continues `text` with the model in `folder`.
 *
 * @throws what `Generator` throws
 */
export async function runGenerate(
  folder: string,
  text: string,
  flags: GenerateFlags,
  { logger, write, signal }: RunGenerateOptions,
): Promise<GenerateReport> {
  const prompt: Prompt = flags.chat === true ? [{ role: 'user', content: text }] : text;
  const overrides = overridesOf(flags);
  let promptTokens = 0;
  const generator = await Generator.load(folder, {
    ...resourcesOf(flags),
    strictConfig: flags.strict_config ?? false,
    logger,
    maxLength: async (opened) => {
      const { maxNewTokens, doSample } = overridden(opened.settings, overrides);
      if (!doSample) warnOfIdle(flags, logger);
      promptTokens = (await opened.encode(prompt)).length;
      const { maxPositions } = opened.model;
      if (promptTokens + maxNewTokens > maxPositions) {
        logger.warn(
          `the model has ${maxPositions} positions, so at most ${maxPositions - promptTokens} tokens are added`,
        );
      }
      return promptTokens + maxNewTokens;
    },
  });
  try {
    const stop = flags.stop === undefined ? {} : { stop: flags.stop };
    const options = { ...overrides, ...stop, signal };
    const { result, promptSeconds, rate } = await timed(generator, prompt, options, write);
    return {
      prompt: text,
      completion: result.completion,
      ids: result.ids,
      finish_reason: result.finishReason,
      prompt_tokens: promptTokens,
      prompt_seconds: promptSeconds,
      tokens_per_second: rate,
      peak_bytes: generator.peakBytes,
      budget_bytes: generator.budgetBytes,
      bytes_moved: generator.bytesMoved,
    };
  } finally {
    await generator.close();
  }
}

/** Writes the tokens' text as it comes and takes the time. */
async function timed(
  generator: Generator,
  prompt: Prompt,
  options: GenerateOptions,
  write: (text: string) => void,
): Promise<{ result: GenerationResult; promptSeconds: number; rate: number }> {
  const started = performance.now();
  const tokens = generator.generate(prompt, options);
  let first: number | undefined;
  for (;;) {
    const step = await tokens.next();
    const now = performance.now();
    first ??= now;
    if (step.done === true) {
      const result = step.value;
      const seconds = (now - first) / 1000;
      const rate = seconds > 0 ? Math.max(0, result.ids.length - 1) / seconds : 0;
      return { result, promptSeconds: (first - started) / 1000, rate };
    }
    if (step.value.text !== '') write(step.value.text);
  }
}

function overridesOf(flags: GenerateFlags): GenerationOverrides {
  return {
    maxNewTokens: flags.max_new_tokens,
    doSample: flags.do_sample,
    temperature: flags.temperature,
    topK: flags.top_k,
    topP: flags.top_p,
    repetitionPenalty: flags.repetition_penalty,
    seed: flags.seed,
  };
}

function warnOfIdle(flags: GenerateFlags, logger: Logger): void {
  const idle = (['temperature', 'top_k', 'top_p'] as const).filter(
    (name) => flags[name] !== undefined,
  );
  if (idle.length === 0) return;
  logger.warn(
    `${idle.join(', ')} decide nothing without --do_sample: the likeliest token is taken`,
  );
}

function resourcesOf(flags: GenerateFlags) {
  const given = {
    device: flags.device,
    deviceMemory: flags.device_memory,
    hostMemory: flags.host_memory,
    nvmePath: flags.nvme_path,
    nvmeMemory: flags.nvme_memory,
    dtype: flags.dtype,
    offloadParam: flags['offload_param.device'],
  };
  type Given = { [K in keyof typeof given]?: NonNullable<(typeof given)[K]> };
  return Object.fromEntries(
    Object.entries(given).filter(([, value]) => value !== undefined),
  ) as Given;
}

/**
 * @file `spillway generate`: from arguments to a continued text on standard output.
 */
import { formatBytes } from '../../core/bytes.js';
import { isCoded, SpillwayError } from '../../core/errors.js';
import { stderrLogger, type Logger } from '../../core/logger.js';
import { TIERS } from '../../core/types.js';
import { GENERATE_KEYS } from '../config/keys/generate-keys.js';
import { parseFlags, type ParsedFlags } from '../config/parse-flags.js';
import { CONFIG_KEYS } from '../config/schema.js';
import { typeValues } from '../config/type-values.js';
import type { GenerateReport } from '../generate/run-generate.js';
import { readPrompt, type PromptInput } from './read-prompt.js';
import { stopOnSignals } from './stop-on-signals.js';

/** What belongs to the command line alone, and the streams of the process or of a test. */
export interface GenerateCommandOptions {
  /** One JSON object instead of text. */
  readonly json?: boolean;
  readonly stdin?: PromptInput;
  readonly write?: (text: string) => void;
  readonly logger?: Logger;
}

/**
 * Generates as `args` say. Without `json`, the text appears as it comes; a note on standard error says
 * how it went.
 *
 * @returns the exit status
 */
export async function runGenerateCommand(
  args: readonly string[],
  options: GenerateCommandOptions = {},
): Promise<number> {
  const { json = false, logger = stderrLogger } = options;
  const write = options.write ?? ((text: string) => void process.stdout.write(text));
  const { values, positionals } = parseGenerateFlags(args);
  const flags = typeValues(GENERATE_KEYS, new Map(), values);
  const [folder, dash, ...more] = positionals;
  if (folder === undefined || more.length > 0 || (dash !== undefined && dash !== '-')) {
    throw new SpillwayError(
      'USAGE_INVALID',
      'generate takes one model folder (and - for standard input); see spillway generate --help',
      { arguments: positionals },
    );
  }
  const promptFile = flags.prompt_file ?? dash;
  const prompt = await readPrompt({ prompt: flags.prompt, promptFile }, options.stdin);
  // The engine and tfjs load only now.
  const { runGenerate } = await import('../generate/run-generate.js');
  const stop = stopOnSignals(logger);
  const reader = readerOf(process.stdout);
  try {
    const signal = AbortSignal.any([stop.signal, reader.gone]);
    const report = await runGenerate(folder, prompt, flags, {
      logger,
      write: json ? () => undefined : write,
      signal,
    });
    write(json ? `${JSON.stringify(report)}\n` : '\n');
    if (!json) logger.info(noteOf(report));
  } finally {
    reader.dispose();
    stop.dispose();
  }
  return stop.status();
}

/** Who takes the keys of a run here is told so, which the nearest name would not tell. */
function parseGenerateFlags(args: readonly string[]): ParsedFlags {
  try {
    return parseFlags(args, GENERATE_KEYS);
  } catch (error) {
    if (!isCoded(error) || error.code !== 'CONFIG_UNKNOWN_KEY') throw error;
    const key = String(error.facts?.['key']).replaceAll('-', '_');
    if (!Object.hasOwn(CONFIG_KEYS, key)) throw error;
    throw new SpillwayError(
      'CONFIG_UNKNOWN_KEY',
      `${key} is a key of train, not of generate, which takes the model's folder as an argument; see spillway generate --help`,
      { key },
      error,
    );
  }
}

/** Tells when nobody reads `stream` any longer, as after `| head`: there is no use in going on. */
function readerOf(stream: NodeJS.WritableStream): { gone: AbortSignal; dispose(): void } {
  const controller = new AbortController();
  const onError = (error: NodeJS.ErrnoException): void => {
    if (error.code === 'EPIPE') controller.abort();
  };
  stream.on('error', onError);
  return { gone: controller.signal, dispose: () => void stream.off('error', onError) };
}

function noteOf(report: GenerateReport): string {
  const { ids, tokens_per_second: rate, prompt_tokens: promptTokens } = report;
  const peaks = TIERS.map(
    (tier) =>
      `${tier} ${formatBytes(report.peak_bytes[tier])} of ${formatBytes(report.budget_bytes[tier])}`,
  );
  return `${promptTokens} tokens read in ${report.prompt_seconds.toFixed(2)} s, ${ids.length} added at ${rate.toFixed(1)} tokens/s, ended by ${report.finish_reason}; peak bytes: ${peaks.join(', ')}`;
}

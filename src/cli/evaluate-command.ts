/**
 * @file `spillway evaluate`: from arguments to a loss on standard output.
 */
import { formatBytes } from '../../core/bytes.js';
import { TIERS } from '../../core/types.js';
import { loadConfig } from '../config/load-config.js';
import type { EvaluateReport } from '../train/run-evaluate.js';
import { configArguments } from './config-arguments.js';
import { DeferredLogger } from './deferred-logger.js';
import { setErrorFormat } from './error-format.js';
import { openLogger } from './reporters/run-output.js';
import { isAbort, stopOnSignals } from './stop-on-signals.js';

/** What belongs to the command line alone, and the stream of a test. */
export interface EvaluateCommandOptions {
  /** One JSON object instead of lines. */
  readonly json?: boolean;
  readonly print?: (line: string) => void;
}

/**
 * Evaluates as `args` say.
 *
 * @returns the exit status; after a signal nothing is printed
 */
export async function runEvaluateCommand(
  args: readonly string[],
  options: EvaluateCommandOptions = {},
): Promise<number> {
  const { json = false } = options;
  const print = options.print ?? ((line: string) => void process.stdout.write(`${line}\n`));
  const given = configArguments('evaluate', args);
  const notes = new DeferredLogger();
  const required = ['model_name_or_path'] as const;
  const config = await loadConfig({ ...given, required, logger: notes });
  setErrorFormat(json ? 'json' : config.logFormat);
  const logger = await openLogger(config.logFormat);
  notes.flushTo(logger);
  // The engine and tfjs load only now.
  const { runEvaluate } = await import('../train/run-evaluate.js');
  const stop = stopOnSignals(logger);
  try {
    const report = await runEvaluate(config, { logger, signal: stop.signal });
    if (json) print(JSON.stringify(report));
    else for (const line of linesOf(report)) print(line);
  } catch (error) {
    if (!(stop.signal.aborted && isAbort(error, stop.signal))) throw error;
  } finally {
    stop.dispose();
  }
  return stop.status();
}

function linesOf(report: EvaluateReport): string[] {
  const { eval_samples: samples, eval_tokens: tokens, eval_runtime: seconds } = report;
  const peaks = TIERS.map(
    (tier) =>
      `${tier} ${formatBytes(report.peak_bytes[tier])} of ${formatBytes(report.budget_bytes[tier])}`,
  );
  return [
    `loss ${report.eval_loss.toFixed(4)}, perplexity ${report.eval_perplexity.toFixed(4)}`,
    `${samples} sequences, ${tokens} tokens in ${seconds.toFixed(2)} s (${(tokens / seconds).toFixed(1)} tokens/s)`,
    `peak bytes: ${peaks.join(', ')}`,
  ];
}

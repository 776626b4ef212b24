/**
 * @file Chooses how a run appears: results on standard output, notes and the bar on standard error.
 *
 * | asked for | standard output | standard error |
 * | --- | --- | --- |
 * | a terminal | lines and the final table | notes above a progress bar |
 * | no terminal, `disable_tqdm`, CI | the same | notes |
 * | `--json` | JSON events | notes |
 * | `log_format: json` | as above, without a bar | notes as JSON lines |
 */
import { textLogger, type Logger } from '../../../core/logger.js';
import type { RunReporter } from '../../train/run-reporter.js';
import { onAbruptEnd } from '../abrupt-end.js';
import type { TerminalStream } from './status-bar.js';

/** How a run is to appear. */
export interface RunOutputOptions {
  /** JSON events instead of lines. */
  readonly json: boolean;
  readonly logFormat: 'text' | 'json';
  /** No progress bar. */
  readonly disableTqdm: boolean;
}

/** The process's streams and environment, or a test's. */
export interface OutputStreams {
  readonly stdout: TerminalStream;
  readonly stderr: TerminalStream;
  readonly env: NodeJS.ProcessEnv;
}

/** A run's reporter and logger; `dispose` leaves the terminal tidy and is idempotent. */
export interface RunOutput {
  readonly reporter: RunReporter;
  readonly logger: Logger;
  dispose(): void;
}

/** Opens the output that `options` and the streams call for; its code loads now. */
export async function openRunOutput(
  options: RunOutputOptions,
  streams: OutputStreams = process,
): Promise<RunOutput> {
  if (showsBar(options, streams)) return openTerminal(streams);
  const print = (line: string): void => void streams.stdout.write(`${line}\n`);
  const logger = await openLogger(options.logFormat, streams.stderr);
  const dispose = (): void => undefined;
  if (options.json) {
    const { JsonReporter } = await import('./json-reporter.js');
    return { reporter: new JsonReporter(print), logger, dispose };
  }
  const { PlainReporter } = await import('./plain-reporter.js');
  return { reporter: new PlainReporter(print), logger, dispose };
}

/** Notes as lines of `stderr`, or as JSON lines of the process's standard error. */
export async function openLogger(
  format: 'text' | 'json',
  stderr: NodeJS.WritableStream = process.stderr,
): Promise<Logger> {
  if (format === 'text') return textLogger((line) => void stderr.write(`${line}\n`));
  const { jsonLogger } = await import('../json-logger.js');
  return jsonLogger();
}

/** A bar needs a terminal that moves its cursor, and somebody who looks at it. */
function showsBar(options: RunOutputOptions, { stderr, env }: OutputStreams): boolean {
  const inCi = env['CI'] !== undefined && env['CI'] !== '' && env['CI'] !== 'false';
  const wanted = !options.json && !options.disableTqdm && options.logFormat === 'text';
  return wanted && stderr.isTTY === true && env['TERM'] !== 'dumb' && !inCi;
}

async function openTerminal({ stdout, stderr }: OutputStreams): Promise<RunOutput> {
  const { StatusBar } = await import('./status-bar.js');
  const { ProgressReporter } = await import('./progress-reporter.js');
  const bar = new StatusBar(stderr);
  const print = (line: string): void => {
    const write = (): void => void stdout.write(`${line}\n`);
    // Results that go to a file do not touch the terminal.
    if (stdout.isTTY === true) bar.above(write);
    else write();
  };
  const forget = onAbruptEnd(() => bar.hide());
  return {
    reporter: new ProgressReporter(bar, print),
    logger: textLogger((line) => bar.above(() => void stderr.write(`${line}\n`))),
    dispose: () => {
      bar.hide();
      forget();
    },
  };
}

/**
 * @file `spillway train`: from arguments to a run, and from Ctrl-C to an orderly stop.
 */
import { SpillwayError } from '../../core/errors.js';
import { stderrLogger } from '../../core/logger.js';
import { loadConfig } from '../config/load-config.js';
import { parseFlags } from '../config/parse-flags.js';

/** Exit statuses of a process that a signal ended: 128 + the signal's number. */
const SIGNAL_STATUS = { SIGINT: 130, SIGTERM: 143 } as const;

/**
 * Trains as `args` say.
 *
 * The first SIGINT or SIGTERM asks the run to stop after what it is doing; the second ends the
 * process.
 *
 * @returns the exit status
 */
export async function runTrainCommand(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseFlags(args);
  if (positionals.length > 1) {
    throw new SpillwayError(
      'USAGE_INVALID',
      `train takes one configuration file, not ${positionals.length}; see spillway train --help`,
      { arguments: positionals },
    );
  }
  const config = await loadConfig({ file: positionals[0], flags: values });
  // The engine and tfjs load only when a run starts.
  const { runTrain } = await import('../train/run-train.js');
  const stop = stopOnSignals();
  try {
    await runTrain(config, {
      logger: stderrLogger,
      stdout: (line) => void process.stdout.write(`${line}\n`),
      signal: stop.signal,
    });
  } catch (error) {
    // The run was asked to stop and says so.
    if (!(stop.signal.aborted && isAbort(error, stop.signal))) throw error;
  } finally {
    stop.dispose();
  }
  return stop.status();
}

function isAbort(error: unknown, signal: AbortSignal): boolean {
  return error === signal.reason || (error instanceof Error && error.cause === signal.reason);
}

interface StopOnSignals {
  readonly signal: AbortSignal;
  /** 0, or the status of the signal that came. */
  status(): number;
  dispose(): void;
}

function stopOnSignals(): StopOnSignals {
  const controller = new AbortController();
  let status = 0;
  const onSignal = (name: NodeJS.Signals) => {
    const code = SIGNAL_STATUS[name as keyof typeof SIGNAL_STATUS];
    if (controller.signal.aborted) process.exit(code);
    status = code;
    stderrLogger.info(`${name}: stopping; once more to end at once`);
    controller.abort();
  };
  const names = Object.keys(SIGNAL_STATUS) as NodeJS.Signals[];
  for (const name of names) process.on(name, onSignal);
  return {
    signal: controller.signal,
    status: () => status,
    dispose: () => {
      for (const name of names) process.off(name, onSignal);
    },
  };
}

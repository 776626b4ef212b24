/**
 * @file From Ctrl-C to an orderly stop.
 */
import type { Logger } from '../../core/logger.js';
import { tidyUp } from './abrupt-end.js';

/** Exit statuses of a process that a signal ended: 128 + the signal's number. */
const SIGNAL_STATUS = { SIGINT: 130, SIGTERM: 143 } as const;

/** Whether `error` is the signal's own, or was caused by it. */
export function isAbort(error: unknown, signal: AbortSignal): boolean {
  return error === signal.reason || (error instanceof Error && error.cause === signal.reason);
}

/** Watches for SIGINT and SIGTERM until `dispose`. */
export interface StopOnSignals {
  readonly signal: AbortSignal;
  /** 0, or the status of the signal that came. */
  status(): number;
  dispose(): void;
}

/**
 * The first SIGINT or SIGTERM aborts `signal`; the second ends the process.
 *
 * @param logger is told of the first
 */
export function stopOnSignals(logger: Logger): StopOnSignals {
  const controller = new AbortController();
  let status = 0;
  const onSignal = (name: NodeJS.Signals) => {
    if (controller.signal.aborted) {
      endBy(name);
      return;
    }
    status = SIGNAL_STATUS[name as keyof typeof SIGNAL_STATUS];
    logger.info(`${name}: stopping; once more to end at once`);
    controller.abort();
  };
  const names = Object.keys(SIGNAL_STATUS) as NodeJS.Signals[];
  /** Lets the signal do what it does by itself: an exit would wait for reads that never end. */
  const endBy = (name: NodeJS.Signals): void => {
    tidyUp();
    for (const one of names) process.off(one, onSignal);
    process.kill(process.pid, name);
  };
  for (const name of names) process.on(name, onSignal);
  return {
    signal: controller.signal,
    status: () => status,
    dispose: () => {
      for (const name of names) process.off(name, onSignal);
    },
  };
}

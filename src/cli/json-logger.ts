/**
 * @file Notes and warnings as JSON lines, by pino: `level` (30 note, 40 warning), `time`
 * (milliseconds since 1970), `facts` where there are any, `msg`.
 *
 * Writes are synchronous: nothing is lost when the process ends. Loaded only when asked for.
 */
import { pino } from 'pino';
import type { Logger } from '../../core/logger.js';

/** Logs to the file descriptor `fd`, standard error by default. */
export function jsonLogger(fd: number = process.stderr.fd): Logger {
  const destination = pino.destination({ fd, sync: true });
  // A reader that is gone must not end the run.
  destination.on('error', () => undefined);
  const log = pino({ base: null }, destination);
  return {
    info: (message, facts) => (facts ? log.info({ facts }, message) : log.info(message)),
    warn: (message, facts) => (facts ? log.warn({ facts }, message) : log.warn(message)),
  };
}

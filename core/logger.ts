/**
 * @file Where warnings and notes go. The library stays silent unless a logger is passed; the CLI
 * passes one that writes to standard error, so that standard output stays machine-readable.
 */

/** Sink for messages; every method takes one line. */
export interface Logger {
  info(message: string): void;
  warn(message: string): void;
}

/** Drops everything. */
export const silentLogger: Logger = { info: () => undefined, warn: () => undefined };

/** Writes `message` lines to standard error, warnings with a `warning: ` prefix. */
export const stderrLogger: Logger = {
  info: (message) => void process.stderr.write(`${message}\n`),
  warn: (message) => void process.stderr.write(`warning: ${message}\n`),
};

const warned = new Set<string>();

/** Warns once per process for each `key`. */
export function warnOnce(logger: Logger, key: string, message: string): void {
  if (warned.has(key)) return;
  warned.add(key);
  logger.warn(message);
}

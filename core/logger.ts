/**
 * @file Where warnings and notes go. The library stays silent unless a logger is passed; the CLI
 * passes one that writes to standard error, so that standard output stays machine-readable.
 */
import { withFacts, type ErrorFacts } from './errors.js';

/** Sink for messages; every method takes one line, and facts that it does not repeat. */
export interface Logger {
  info(message: string, facts?: ErrorFacts): void;
  warn(message: string, facts?: ErrorFacts): void;
}

/** Drops everything. */
export const silentLogger: Logger = { info: () => undefined, warn: () => undefined };

/** Gives each message to `print` as one line of text, warnings with a `warning: ` prefix. */
export function textLogger(print: (line: string) => void): Logger {
  return {
    info: (message, facts) => print(withFacts(message, facts)),
    warn: (message, facts) => print(`warning: ${withFacts(message, facts)}`),
  };
}

/** Writes lines of text to standard error. */
export const stderrLogger: Logger = textLogger((line) => void process.stderr.write(`${line}\n`));

const warned = new Set<string>();

/** Warns once per process for each `key`. */
export function warnOnce(logger: Logger, key: string, message: string, facts?: ErrorFacts): void {
  if (warned.has(key)) return;
  warned.add(key);
  if (facts === undefined) logger.warn(message);
  else logger.warn(message, facts);
}

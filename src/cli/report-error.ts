/**
 * @file The one place where an error becomes a line on standard error and an exit status.
 *
 * The line is text, or a JSON object where the command line or the configuration asks for JSON.
 */
import { writeSync } from 'node:fs';
import { inspect } from 'node:util';
import { ERROR_EXIT_STATUS, formatError, isCoded } from '../../core/errors.js';
import { tidyUp } from './abrupt-end.js';
import { errorFormat } from './error-format.js';

/** Exit status of `error`: 2 for usage, configuration, model folder and data; else 1. */
export function exitStatusOf(error: unknown): 1 | 2 {
  return isCoded(error) ? ERROR_EXIT_STATUS[error.code] : 1;
}

/** What is printed: `error: CODE: message (facts)`; with `debug` the stacks of all causes too. */
export function renderError(error: unknown, debug: boolean): string {
  const line = `error: ${formatError(error)}\n`;
  return debug ? `${line}${stacks(error).join('')}` : line;
}

/** The same as one JSON object: `code`, `message`, `facts`, `exit_status`, with `debug` `stack`. */
export function renderErrorJson(error: unknown, debug: boolean): string {
  const coded = isCoded(error);
  const object = {
    code: coded ? error.code : 'INTERNAL',
    message: error instanceof Error ? error.message : String(error),
    facts: (coded ? error.facts : undefined) ?? {},
    exit_status: exitStatusOf(error),
    ...(debug ? { stack: stacks(error).join('') } : {}),
  };
  return `${JSON.stringify(object)}\n`;
}

/** Most causes followed: chains are short, and a cycle must end. */
const MAX_CAUSES = 10;

function stacks(error: unknown): string[] {
  const texts: string[] = [];
  for (let cause = error; cause !== undefined && texts.length < MAX_CAUSES;) {
    const text = cause instanceof Error ? (cause.stack ?? cause.message) : inspect(cause);
    texts.push(`${texts.length === 0 ? '' : 'caused by: '}${text}\n`);
    cause = cause instanceof Error ? cause.cause : undefined;
  }
  return texts;
}

/** Tidies the terminal and prints `error`, at once: the process may be about to end. */
export function reportError(error: unknown, debug: boolean): void {
  tidyUp();
  const render = errorFormat() === 'json' ? renderErrorJson : renderError;
  try {
    writeSync(process.stderr.fd, render(error, debug));
  } catch {
    // Nobody reads standard error; the exit status still tells.
  }
}

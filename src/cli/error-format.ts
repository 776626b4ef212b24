/**
 * @file Whether the process's final error is a line for people or a JSON object.
 *
 * Known from the command line at first; a configuration file may say so later. One per process, as
 * is standard error.
 */

/** As the key `log_format`. */
export type ErrorFormat = 'text' | 'json';

let current: ErrorFormat = 'text';

export function errorFormat(): ErrorFormat {
  return current;
}

export function setErrorFormat(format: ErrorFormat): void {
  current = format;
}

/** What `args` ask for: JSON by `--json` or `--log_format json`, with either dash. */
export function errorFormatOf(args: readonly string[]): ErrorFormat {
  const asksForJson = args.some((arg, index) => {
    if (arg === '--json') return true;
    const match = /^--?log[-_]format(?:=(.*))?$/.exec(arg);
    return match !== null && (match[1] ?? args[index + 1]) === 'json';
  });
  return asksForJson ? 'json' : 'text';
}

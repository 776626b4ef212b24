/**
 * @file The one error class. Callers test `code`: class identity does not survive a worker thread.
 *
 * A message says what happened and, after a semicolon, the remedy; facts carry the numbers.
 * docs/ERRORS.md lists each code with cause and remedy; a test compares that page with this table.
 */

/**
 * Every code and its exit status: 2 for usage, configuration, model folder and data; 1 for run
 * time.
 */
export const ERROR_EXIT_STATUS = {
  // Usage and configuration.
  USAGE_INVALID: 2,
  CONFIG_INVALID: 2,
  CONFIG_UNKNOWN_KEY: 2,
  CONFIG_NOT_FOUND: 2,
  BYTE_SIZE_INVALID: 2,
  BUDGET_TOO_SMALL: 2,
  DEVICE_UNAVAILABLE: 2,
  PATH_UNWRITABLE: 2,
  // Model folder.
  MODEL_NOT_FOUND: 2,
  MODEL_UNSUPPORTED: 2,
  MODEL_CONFIG_INVALID: 2,
  CHECKPOINT_NOT_FOUND: 2,
  CHECKPOINT_CORRUPT: 2,
  CHECKPOINT_MISMATCH: 2,
  // Data.
  DATA_NOT_FOUND: 2,
  DATA_INVALID: 2,
  DATA_EMPTY: 2,
  TOKENIZER_INVALID: 2,
  TOKEN_OUT_OF_RANGE: 2,
  // Results of a run.
  RUN_NOT_FOUND: 2,
  RUN_CORRUPT: 2,
  // Run time.
  DEVICE_OUT_OF_MEMORY: 1,
  HOST_OUT_OF_MEMORY: 1,
  NVME_FULL: 1,
  IO_ERROR: 1,
  OUTPUT_FULL: 1,
  IO_SHORT: 1,
  STATE_CORRUPT: 1,
  STORE_LOCKED: 1,
  NON_FINITE: 1,
  WEIGHTS_UNCHANGED: 1,
  ENGINE_CLOSED: 1,
  ENGINE_FAILED: 1,
  BLOCK_INVALID: 1,
  GRADIENT_MISSING: 1,
  NATIVE_ABI_MISMATCH: 1,
  WORKER_FAILED: 1,
  INTERNAL: 1,
} as const satisfies Record<string, 1 | 2>;

/** A stable error code. */
export type ErrorCode = keyof typeof ERROR_EXIT_STATUS;

/** Numbers, names and paths that explain an error. */
export type ErrorFacts = Readonly<Record<string, string | number | boolean | readonly string[]>>;

/** The one error class of Spillway. */
export class SpillwayError extends Error {
  override readonly name = 'SpillwayError';
  readonly code: ErrorCode;
  readonly facts: ErrorFacts;

  /**
   * @param code stable code, listed in docs/ERRORS.md
   * @param message what happened; then, after a semicolon, the remedy
   * @param facts the numbers; printed after the message as `(key=value …)`
   * @param cause the error that led to this one, kept for `--debug`
   */
  constructor(code: ErrorCode, message: string, facts: ErrorFacts = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.facts = facts;
  }
}

/** Whether `error` carries the code `code`, also after a worker thread has cloned it. */
export function hasCode(error: unknown, code: ErrorCode): boolean {
  return isCoded(error) && error.code === code;
}

/** Whether `error` carries any Spillway code. */
export function isCoded(error: unknown): error is Error & { code: ErrorCode; facts?: ErrorFacts } {
  return (
    error instanceof Error &&
    'code' in error &&
    typeof error.code === 'string' &&
    Object.hasOwn(ERROR_EXIT_STATUS, error.code)
  );
}

/** Longest line that `formatError` makes: files are quoted in messages, and say anything. */
const LONGEST_LINE = 4000;

/** One line for people: `CODE: message (fact=value …)`. */
export function formatError(error: unknown): string {
  if (!isCoded(error)) {
    const text = error instanceof Error ? error.message : String(error);
    return oneLine(`INTERNAL: ${text}`);
  }
  return oneLine(`${error.code}: ${withFacts(error.message, error.facts)}`);
}

function oneLine(text: string): string {
  const cut = text.length > LONGEST_LINE ? `${text.slice(0, LONGEST_LINE - 1)}…` : text;
  return cut.replaceAll(/\s*\n\s*/g, ' ');
}

/** `message (fact=value …)`; `message` alone where there are no facts. */
export function withFacts(message: string, facts: ErrorFacts = {}): string {
  const text = Object.entries(facts)
    .map(([key, value]) => `${key}=${Array.isArray(value) ? value.join(',') : String(value)}`)
    .join(' ');
  return text === '' ? message : `${message} (${text})`;
}

/** Throws INTERNAL when `condition` is false. For bugs only; never caught. */
export function assert(condition: boolean, message: string, facts?: ErrorFacts): asserts condition {
  if (!condition) throw new SpillwayError('INTERNAL', `assertion failed: ${message}`, facts);
}

/**
 * @file Errors as plain data between worker and main thread: structured clone drops `code` and
 * `facts`, and class identity with them.
 */
import { isCoded, SpillwayError, type ErrorCode, type ErrorFacts } from '../../core/errors.js';

export interface WireError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly facts: ErrorFacts;
  /** Stack in the worker, kept in the rebuilt error's cause for `--debug`. */
  readonly stack: string;
}

/**
 * `error` as plain data; one without a Spillway code is a bug and becomes INTERNAL.
 *
 * @param where the kind of thread, named in the message of a bug
 */
export function toWireError(error: unknown, where = 'optimizer worker'): WireError {
  const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
  if (isCoded(error)) {
    return { code: error.code, message: error.message, facts: error.facts ?? {}, stack };
  }
  const message = error instanceof Error ? error.message : String(error);
  return { code: 'INTERNAL', message: `${where}: ${message}`, facts: {}, stack };
}

/** The error that `wire` describes, with the worker's stack as its cause. */
export function fromWireError(wire: WireError, facts: ErrorFacts = {}): SpillwayError {
  const cause = new Error(wire.message);
  cause.stack = wire.stack;
  return new SpillwayError(wire.code, wire.message, { ...wire.facts, ...facts }, cause);
}

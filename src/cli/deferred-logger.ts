/**
 * @file Keeps notes until it is known how they are to appear.
 */
import type { ErrorFacts } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';

/** A configuration has some hundred keys; whatever would note more is not worth reading. */
const MAX_NOTES = 1000;

export class DeferredLogger implements Logger {
  #notes: ((logger: Logger) => void)[] = [];

  info(message: string, facts?: ErrorFacts): void {
    this.#keep((logger) => {
      logger.info(message, facts);
    });
  }

  warn(message: string, facts?: ErrorFacts): void {
    this.#keep((logger) => {
      logger.warn(message, facts);
    });
  }

  /** Hands the notes to `logger`, in order, and forgets them. */
  flushTo(logger: Logger): void {
    const notes = this.#notes;
    this.#notes = [];
    for (const note of notes) note(logger);
  }

  #keep(note: (logger: Logger) => void): void {
    if (this.#notes.length < MAX_NOTES) this.#notes.push(note);
  }
}

/**
 * @file What an engine's calls go through: one at a time, none after an error but `close`.
 */
import { SpillwayError, formatError } from '../../core/errors.js';

type State =
  | { readonly kind: 'open' }
  | { readonly kind: 'failed'; readonly error: unknown }
  | { readonly kind: 'closed' };

export class CallGate {
  #state: State = { kind: 'open' };
  /** The call under way; settles without an error. */
  #running: Promise<unknown> | undefined;
  #closing: Promise<void> | undefined;

  /** @throws ENGINE_FAILED after an error, ENGINE_CLOSED after `close` */
  check(): void {
    if (this.#state.kind === 'closed') {
      throw new SpillwayError('ENGINE_CLOSED', 'the engine is closed; create another one');
    }
    if (this.#state.kind === 'failed') {
      const { error } = this.#state;
      throw new SpillwayError(
        'ENGINE_FAILED',
        `an earlier call failed; only close() is possible now (${formatError(error)})`,
        {},
        error,
      );
    }
  }

  /** Makes the engine refuse everything but `close`, because of `error`. The first one counts. */
  fail(error: unknown): void {
    if (this.#state.kind === 'open') this.#state = { kind: 'failed', error };
  }

  /**
   * Runs `body`; an error, as `explain` tells it, fails the engine.
   *
   * @throws what `body` throws, explained
   */
  async guard<T>(
    body: () => Promise<T>,
    explain: (error: unknown) => unknown = (error) => error,
  ): Promise<T> {
    try {
      return await body();
    } catch (error) {
      const told = explain(error);
      this.fail(told);
      throw told;
    }
  }

  /** Runs `body` unless another call runs; `close` waits for it. */
  async exclusive<T>(body: () => Promise<T>): Promise<T> {
    this.check();
    if (this.#running !== undefined) {
      throw new SpillwayError(
        'ENGINE_FAILED',
        'another call on this engine is running; await it first',
      );
    }
    const result = (async () => body())();
    this.#running = result.catch(() => undefined);
    try {
      return await result;
    } finally {
      this.#running = undefined;
    }
  }

  /** Refuses calls from now on, waits for the one under way, then runs `release`, once. */
  close(release: () => Promise<void>): Promise<void> {
    this.#state = { kind: 'closed' };
    this.#closing ??= (async () => {
      await this.#running;
      await release();
    })();
    return this.#closing;
  }
}

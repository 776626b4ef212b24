/**
 * @file One progress bar on the last line of a terminal, by cli-progress.
 *
 * Redrawn at most ten times a second and whenever a line was printed above it. The cursor stays
 * visible, so that a process that is killed leaves nothing behind but the bar's own line. Owns the
 * bar; does not own the stream.
 */
import { SingleBar } from 'cli-progress';
import { renderProgressLine, type ProgressState } from './progress-line.js';

/** A terminal that a bar can be drawn on. */
export type TerminalStream = NodeJS.WritableStream & { readonly isTTY?: boolean };

/** Redraws per second. */
const FPS = 10;

/** Remembers the cursor's position; stopping the bar returns to it. */
const SAVE_CURSOR = '\u001B7';
/** Column 1, then clear the line. */
const CLEAR_LINE = '\u001B[1G\u001B[2K';

export class StatusBar {
  readonly #stream: TerminalStream;
  readonly #bar: SingleBar;
  #state: ProgressState | undefined;

  constructor(stream: TerminalStream) {
    this.#stream = stream;
    this.#bar = new SingleBar({
      stream,
      fps: FPS,
      format: (_options, params) =>
        this.#state === undefined
          ? ''
          : renderProgressLine(this.#state, (params as { maxWidth: number }).maxWidth),
      clearOnComplete: true,
      // Other lines are printed above, which the bar does not see.
      forceRedraw: true,
      hideCursor: null,
      // Lines are cut to the width; the terminal's own wrapping stays as it is.
      linewrap: true,
      // The command handles signals.
      gracefulExit: false,
    });
  }

  /** Shows `state`, now or within a tenth of a second. */
  show(state: ProgressState): void {
    this.#state = state;
    if (!this.#bar.isActive) this.#bar.start(state.total, state.done);
    else {
      this.#bar.setTotal(state.total);
      this.#bar.update(state.done);
    }
  }

  /** Runs `print`, which writes whole lines to the terminal, with the bar out of the way. */
  above(print: () => void): void {
    if (!this.#bar.isActive) {
      print();
      return;
    }
    this.#stream.write(CLEAR_LINE);
    print();
    // The bar's line is now another one.
    this.#stream.write(SAVE_CURSOR);
    this.#bar.render();
  }

  /** Clears the bar's line. Idempotent. */
  hide(): void {
    this.#state = undefined;
    this.#bar.stop();
  }
}

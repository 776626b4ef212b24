/**
 * @file Text of tokens as they come: never half a character, and nothing of a stop string.
 *
 * A token may end within a character, which then decodes as U+FFFD, and how a token reads may depend
 * on those before it. So a window of the last tokens is decoded again; what ends in U+FFFD waits, and
 * the window moves on when nothing waits. Text that may be the beginning of a stop string waits too.
 */

/** What is used of a tokenizer. */
export interface Decoder {
  decode(ids: readonly number[], options: { readonly skipSpecialTokens: boolean }): string;
}

const UNFINISHED = '\ufffd';

/** A character has at most 4 bytes: after so many tokens U+FFFD stands for bytes that are none. */
const MOST_WAITING_TOKENS = 8;

/** After so many nothing waits any longer: every one of them ended within a character. */
const MOST_WINDOW_TOKENS = 64;

/** U+FFFDs of a character's first bytes, at most: as many as there are such bytes. */
const MOST_UNFINISHED = 3;

export class TextStream {
  readonly #decoder: Decoder;
  readonly #stop: readonly string[];
  /** Tokens whose text is decoded again. */
  #window: number[] = [];
  /** How many of them have been given out whole; the context of the others. */
  #settled = 0;
  /** Characters of the window's text that have been taken. */
  #taken = 0;
  /** Taken, and not given out since it may begin a stop string. */
  #held = '';
  #stopped = false;

  /** @param stop texts that end the sequence; they are not given out */
  constructor(decoder: Decoder, stop: readonly string[] = []) {
    this.#decoder = decoder;
    this.#stop = stop.filter((text) => text !== '');
  }

  /** Whether a stop string has come. */
  get stopped(): boolean {
    return this.#stopped;
  }

  /** Takes a token. @returns the text that is certain by now, often empty */
  push(id: number): string {
    this.#window.push(id);
    const text = this.#text(this.#window);
    const end = this.#endOfCertain(text);
    const fresh = text.slice(this.#taken, end);
    this.#taken = Math.max(this.#taken, end);
    const waiting = this.#window.length - this.#settled;
    if (end === text.length && (fresh !== '' || waiting > MOST_WAITING_TOKENS)) this.#moveWindow();
    return this.#release(fresh);
  }

  /** The rest: nothing follows. */
  finish(): string {
    const rest = this.#release(this.#text(this.#window).slice(this.#taken));
    this.#window = [];
    this.#settled = 0;
    this.#taken = 0;
    const held = this.#stopped ? '' : this.#held;
    this.#held = '';
    return rest + held;
  }

  #text(ids: readonly number[]): string {
    return ids.length === 0 ? '' : this.#decoder.decode(ids, { skipSpecialTokens: true });
  }

  /** How much of the window's text does not change when more tokens come. */
  #endOfCertain(text: string): number {
    const waiting = this.#window.length - this.#settled;
    if (!text.endsWith(UNFINISHED) || waiting > MOST_WINDOW_TOKENS) return text.length;
    let end = text.length;
    const most = waiting > MOST_WAITING_TOKENS ? MOST_UNFINISHED : Infinity;
    while (text[end - 1] === UNFINISHED && text.length - end < most) end -= 1;
    return end;
  }

  /** The tokens since the last move become the context of those that follow. */
  #moveWindow(): void {
    this.#window = this.#window.slice(this.#settled);
    this.#settled = this.#window.length;
    this.#taken = this.#text(this.#window).length;
  }

  /** What can be given out of the text held and `fresh`. */
  #release(fresh: string): string {
    if (this.#stopped) return '';
    const text = this.#held + fresh;
    const found = this.#stop.map((stop) => text.indexOf(stop)).filter((at) => at >= 0);
    if (found.length > 0) {
      this.#stopped = true;
      this.#held = '';
      return text.slice(0, Math.min(...found));
    }
    let keep = 0;
    for (const stop of this.#stop) {
      for (let length = Math.min(stop.length - 1, text.length); length > keep; length -= 1) {
        if (text.endsWith(stop.slice(0, length))) keep = length;
      }
    }
    this.#held = text.slice(text.length - keep);
    return text.slice(0, text.length - keep);
  }
}

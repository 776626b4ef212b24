/**
 * @file A terminal that understands what a progress bar writes: a screen of rows, as a person would
 * see it. Long lines wrap, the screen scrolls, and sequences that it does not know are refused.
 */
import { Writable } from 'node:stream';

const ESCAPE = '\u001B';

export class FakeTerminal extends Writable {
  readonly isTTY = true;
  columns: number;
  readonly rowCount: number;
  /** Rows that scrolled out of the screen. */
  readonly scrolledOut: string[] = [];
  /** Each text that was written. */
  readonly writes: string[] = [];
  #screen: string[][] = [[]];
  #row = 0;
  #column = 0;
  #saved = { row: 0, column: 0 };

  constructor(columns = 80, rowCount = 24) {
    super({ decodeStrings: false });
    this.columns = columns;
    this.rowCount = rowCount;
  }

  /** Everything that was printed, without empty rows at the end. */
  get lines(): string[] {
    const screen = this.#screen.map((row) => row.join(''));
    const lines = [...this.scrolledOut, ...screen].map((line) => line.trimEnd());
    while (lines.at(-1) === '') lines.pop();
    return lines;
  }

  /** The row of the cursor. */
  get currentLine(): string {
    return this.#screen[this.#row]!.join('').trimEnd();
  }

  override write(text: unknown, ...rest: unknown[]): boolean {
    this.writes.push(String(text));
    this.#interpret(String(text));
    const callback = rest.at(-1);
    if (typeof callback === 'function') (callback as () => void)();
    return true;
  }

  #interpret(text: string): void {
    for (let at = 0; at < text.length;) {
      if (text[at] !== ESCAPE) {
        this.#print(text[at]!);
        at += 1;
        continue;
      }
      const match = /^.(?:\[(\d*)([A-Z])|([78]))/.exec(text.slice(at));
      if (match === null) throw new Error(`unknown sequence ${JSON.stringify(text.slice(at, 8))}`);
      at += match[0].length;
      this.#control(match[3] ?? match[2]!, match[1] === '' ? 0 : Number(match[1]));
    }
  }

  #print(character: string): void {
    if (character === '\n') {
      this.#newline();
      return;
    }
    if (this.#column === this.columns) this.#newline();
    this.#screen[this.#row]![this.#column] = character;
    this.#column += 1;
  }

  #newline(): void {
    this.#column = 0;
    this.#row += 1;
    if (this.#row === this.rowCount) {
      this.scrolledOut.push(this.#screen.shift()!.join(''));
      this.#row -= 1;
    }
    this.#screen[this.#row] ??= [];
  }

  /** Cursor to a column, clear to the right or all of a line, save and restore the cursor. */
  #control(name: string, value: number): void {
    const row = this.#screen[this.#row]!;
    if (name === 'G') this.#column = value - 1;
    else if (name === 'K' && value === 0) row.length = Math.min(row.length, this.#column);
    else if (name === 'K' && value === 2) row.length = 0;
    else if (name === '7') this.#saved = { row: this.#row, column: this.#column };
    else if (name === '8') [this.#row, this.#column] = [this.#saved.row, this.#saved.column];
    else throw new Error(`unknown control ${name} ${value}`);
  }
}

/**
 * @file Values of the Jinja library from data, with Python's floats, whole numbers of any size and keys
 * in the order in which they were written.
 *
 * The library takes 1.0 for a whole number and bigints not at all. It does not export its classes,
 * which are taken from values that it has made. A whole number beyond 2^53 is one of its integers with
 * a bigint in it: comparisons with it are right, and arithmetic with other numbers fails.
 */
import { orderedEntries } from './ordered-object.js';
import { PythonFloat } from './python-values.js';
import type { RuntimeValue } from './python-text.js';

/** Makes the library's value of plain data. */
export type ConvertPlain = (value: unknown) => RuntimeValue;

type Make = new (value: unknown) => RuntimeValue;

/** Makes values of one library. */
export class RuntimeValues {
  readonly #plain: ConvertPlain;
  readonly #classes: Readonly<Record<'float' | 'integer' | 'list' | 'object' | 'text', Make>>;

  constructor(plain: ConvertPlain) {
    const classOf = (sample: unknown) => plain(sample).constructor as Make;
    this.#plain = plain;
    this.#classes = {
      float: classOf(0.5),
      integer: classOf(0),
      list: classOf([]),
      object: classOf({}),
      text: classOf(''),
    };
  }

  /** Of data that JSON can hold, with `PythonFloat`s and bigints. */
  of(value: unknown): RuntimeValue {
    const { float, list, object } = this.#classes;
    if (typeof value === 'string') return this.text(value);
    if (typeof value === 'bigint') return this.integer(value);
    if (value instanceof PythonFloat) return new float(value.value);
    if (Array.isArray(value)) return new list(value.map((item) => this.of(item)));
    if (typeof value !== 'object' || value === null) return this.#plain(value);
    const entries = orderedEntries(value).map(([key, item]) => [key, this.of(item)] as const);
    return new object(new Map(entries));
  }

  text(value: string): RuntimeValue {
    return new this.#classes.text(value);
  }

  /** @throws RangeError for infinity and the like */
  integer(value: number | bigint): RuntimeValue {
    return new this.#classes.integer(Number.isSafeInteger(value) ? value : BigInt(value));
  }
}

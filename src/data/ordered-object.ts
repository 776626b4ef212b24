/**
 * @file Objects that remember the order in which their keys were written, as Python's do.
 *
 * JavaScript lists keys that spell whole numbers first, in ascending order. An object that has such
 * a key is registered here with the order it was made in; otherwise it is an object like any other.
 */

const orders = new WeakMap<object, readonly string[]>();

const WHOLE_NUMBER = /^\d+$/;

type Entry = readonly [key: string, value: unknown];

/** An object of `entries`. Where a key recurs, the first gives its place and the last its value. */
export function orderedObject(entries: readonly Entry[]): Readonly<Record<string, unknown>> {
  const result = Object.fromEntries(entries);
  if (entries.some(([key]) => WHOLE_NUMBER.test(key))) {
    orders.set(result, [...new Set(entries.map(([key]) => key))]);
  }
  return result;
}

/** Keys and values of an object, in the order in which they were written. */
export function orderedEntries(value: object): Entry[] {
  const order = orders.get(value);
  if (order === undefined) return Object.entries(value);
  return order.map((key) => [key, (value as Readonly<Record<string, unknown>>)[key]]);
}

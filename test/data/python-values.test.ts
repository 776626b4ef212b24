// Goal: JSON keeps the numbers that Python tells apart and the order of keys, and everything else is as
// JSON.parse gives it.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { orderedEntries } from '../../src/data/ordered-object.js';
import { PythonFloat, withPythonValues } from '../../src/data/python-values.js';

function read(text: string): unknown {
  return withPythonValues(text, JSON.parse(text));
}

/** JavaScript's values again. */
function plain(value: unknown): unknown {
  if (value instanceof PythonFloat) return value.value;
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
}

it.each([
  ['1.0', new PythonFloat(1)],
  ['-0.0', new PythonFloat(-0)],
  ['1E2', new PythonFloat(100)],
  ['1e400', new PythonFloat(Infinity)],
  ['1e-400', new PythonFloat(0)],
  ['9007199254740993', 9007199254740993n],
  ['-9007199254740992', -9007199254740992n],
  ['9007199254740991', 9007199254740991],
  ['1.5', 1.5],
  ['1e-7', 1e-7],
  ['-0', -0],
])('reads %s', (literal, value) => {
  expect(read(literal)).toEqual(value);
  expect(read(`{"a":[${literal},${literal}],"b":"${literal}"}`)).toEqual({
    a: [value, value],
    b: literal,
  });
});

it('gives the parsed value itself where nothing needs care', () => {
  const text = '{"a": [1, 2.5, -3e-1, "1.0 12345678901234567890 \\" 1.0", "9", "\\u0039"]}';
  const parsed: unknown = JSON.parse(text);
  expect(withPythonValues(text, parsed)).toBe(parsed);
});

it('keeps the order of keys, however they are spelled', () => {
  const text =
    '{"10": {"b": 1.0, "2" : 0}, "a": 1, "\\u0032": 2, "01": 3, "\\"1": 4, "0": 5, "10": 6}';
  const value = read(text) as object;
  expect(value).toEqual(JSON.parse(text));
  expect(orderedEntries(value).map(([key]) => key)).toEqual(['10', 'a', '2', '01', '"1', '0']);
  const [inner] = read('[{"10": {"b": 1.0, "2" : 0}}]') as { readonly 10: object }[];
  expect(orderedEntries(inner![10])).toEqual([
    ['b', new PythonFloat(1)],
    ['2', 0],
  ]);
});

it('keeps the order of random keys', () => {
  const key = fc.oneof(fc.nat(12).map(String), fc.constantFrom('a', '4294967295', '-1', '1 '));
  fc.assert(
    fc.property(fc.uniqueArray(key, { maxLength: 8 }), (keys) => {
      const text = `[{${keys.map((name, index) => `${JSON.stringify(name)}:${index}`).join()}}]`;
      const [value] = read(text) as [object];
      expect(orderedEntries(value)).toEqual(keys.map((name, index) => [name, index]));
    }),
  );
});

it('changes nothing but numbers and order, whatever strings hold or spell', () => {
  const piece = fc.constantFrom(
    '7',
    '\ue000',
    '\ue001',
    '"',
    '\\',
    '1.0',
    '\\ue000',
    '{',
    ' ',
    'é',
  );
  const string = fc.array(piece, { maxLength: 6 }).map((parts) => parts.join(''));
  const { tree } = fc.letrec<{ tree: unknown }>((tie) => ({
    tree: fc.oneof(
      { maxDepth: 3 },
      string,
      fc.constantFrom(null, true, 1, 2.5, 1e300, 2 ** 60, 1e21),
      fc.array(tie('tree'), { maxLength: 3 }),
      fc.dictionary(string, tie('tree'), { maxKeys: 3 }),
    ),
  }));
  fc.assert(
    fc.property(tree, fc.boolean(), (value, escapes) => {
      let text = JSON.stringify([value, 2 ** 60]);
      if (escapes) text = text.replaceAll('\ue000', '\\uE000');
      const found = read(text) as unknown[];
      expect(found[1]).toBe(1152921504606847000n);
      expect(plain(found)).toEqual(JSON.parse(text));
    }),
    { numRuns: 300 },
  );
});

it('takes time in proportion to the text, and whole numbers as long as Python takes them', () => {
  const digits = '7'.repeat(4300);
  expect(read(`[${digits}]`)).toEqual([BigInt(digits)]);
  expect(() => read(`[${digits}7]`)).toThrow('has a whole number of more than 4300 digits');
  const long = JSON.stringify(['\\"1.0'.repeat(500_000), Array(100_000).fill(0.5)]);
  const start = performance.now();
  expect(read(`[1.0,${long}]`)).toHaveLength(2);
  expect(performance.now() - start).toBeLessThan(3000);
});

/**
 * @file Mutations of JSON that keep it JSON, mostly: what a parser accepts and a reader must judge.
 *
 * A document is a tree of raw texts, so that a number can be one that no double holds and a key can
 * stand twice.
 */
import fc from 'fast-check';

type Tree =
  | { readonly kind: 'raw'; text: string }
  | { readonly kind: 'list'; items: Tree[] }
  | { readonly kind: 'object'; entries: [key: string, value: Tree][] };

/** Values of every type and at every edge, as JSON text. */
const HOSTILE = [
  'null',
  'true',
  'false',
  '0',
  '-0',
  '1',
  '-1',
  '0.5',
  '1e400',
  '-1e400',
  '1e-400',
  '1e308',
  '2147483647',
  '2147483648',
  '4294967295',
  '4294967296',
  '9007199254740991',
  '9007199254740992',
  '18446744073709551615',
  '99999999999999999999999999999999999999',
  '1099511627776',
  '1000000000000',
  '-9223372036854775808',
  'NaN',
  'Infinity',
  '""',
  '" "',
  '"0"',
  '"\\u0000"',
  '"\\ud800"',
  '"\u2028"',
  '"../../etc/passwd"',
  '"__proto__"',
  '"constructor"',
  '"toString"',
  '[]',
  '{}',
  '[[]]',
  '[null]',
  '[-1]',
  '[1e400]',
  '{"__proto__":{"length":1}}',
  '{"constructor":null}',
  '{"toString":1,"valueOf":1}',
  `"${'x'.repeat(5000)}"`,
  `[${'0,'.repeat(2000)}0]`,
  `${'['.repeat(3000)}${']'.repeat(3000)}`,
  `${'{"a":'.repeat(3000)}1${'}'.repeat(3000)}`,
];

const HOSTILE_KEYS = [
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  'length',
  '',
  '0',
  '-1',
  'k'.repeat(3000),
  '__metadata__',
];

function toTree(value: unknown): Tree {
  if (Array.isArray(value)) return { kind: 'list', items: value.map(toTree) };
  if (typeof value === 'object' && value !== null) {
    return {
      kind: 'object',
      entries: Object.entries(value).map(([key, item]) => [key, toTree(item)]),
    };
  }
  return { kind: 'raw', text: JSON.stringify(value) };
}

function toText(tree: Tree): string {
  switch (tree.kind) {
    case 'raw':
      return tree.text;
    case 'list':
      return `[${tree.items.map(toText).join(',')}]`;
    case 'object':
      return `{${tree.entries.map(([key, value]) => `${JSON.stringify(key)}:${toText(value)}`).join(',')}}`;
    default:
      return tree satisfies never;
  }
}

/** A place in a tree: a container and the index of a member in it. */
interface Place {
  readonly parent: Exclude<Tree, { kind: 'raw' }>;
  readonly index: number;
}

/** Some member, chosen by `choices`: at each level one number picks it, the next where to stop. */
function pick(root: Tree, choices: readonly number[]): Place | undefined {
  let place: Place | undefined;
  let tree = root;
  for (const choice of choices) {
    if (tree.kind === 'raw') return place;
    const members = tree.kind === 'list' ? tree.items : tree.entries.map(([, value]) => value);
    if (members.length === 0) return place;
    place = { parent: tree, index: choice % members.length };
    tree = members[place.index]!;
  }
  return place;
}

type Mutation = (place: Place) => void;

function replace({ parent, index }: Place, value: Tree): void {
  if (parent.kind === 'list') parent.items[index] = value;
  else parent.entries[index]![1] = value;
}

function valueAt({ parent, index }: Place): Tree {
  return parent.kind === 'list' ? parent.items[index]! : parent.entries[index]![1];
}

const remove: Mutation = ({ parent, index }) => {
  if (parent.kind === 'list') parent.items.splice(index, 1);
  else parent.entries.splice(index, 1);
};

const duplicate: Mutation = ({ parent, index }) => {
  if (parent.kind === 'list') parent.items.splice(index, 0, parent.items[index]!);
  else parent.entries.splice(index, 0, parent.entries[index]!);
};

const wrap: Mutation = (place) => replace(place, { kind: 'list', items: [valueAt(place)] });

const mutation: fc.Arbitrary<Mutation> = fc.oneof(
  fc.constant(remove),
  fc.constant(duplicate),
  fc.constant(wrap),
  fc.constantFrom(...HOSTILE).map(
    (text): Mutation =>
      (place) =>
        replace(place, { kind: 'raw', text }),
  ),
  fc.oneof(fc.integer(), fc.double(), fc.maxSafeInteger()).map(
    (value): Mutation =>
      (place) =>
        replace(place, { kind: 'raw', text: String(value) }),
  ),
  fc.string({ unit: 'binary', maxLength: 12 }).map(
    (value): Mutation =>
      (place) =>
        replace(place, { kind: 'raw', text: JSON.stringify(value) }),
  ),
  fc.constantFrom(...HOSTILE_KEYS).map((key): Mutation => ({ parent, index }) => {
    if (parent.kind === 'object') parent.entries[index]![0] = key;
  }),
  fc
    .tuple(fc.constantFrom(...HOSTILE_KEYS), fc.constantFrom(...HOSTILE))
    .map(([key, text]): Mutation => ({ parent, index }) => {
      if (parent.kind === 'object') parent.entries.splice(index, 0, [key, { kind: 'raw', text }]);
    }),
);

/** One to three mutations of `value`, as text. */
export const jsonMutations: fc.Arbitrary<(value: unknown) => string> = fc
  .array(fc.record({ choices: fc.array(fc.nat(), { minLength: 1, maxLength: 5 }), mutation }), {
    minLength: 1,
    maxLength: 3,
  })
  .map((steps) => (value) => {
    const tree = toTree(value);
    for (const { choices, mutation: mutate } of steps) {
      const place = pick(tree, choices);
      if (place !== undefined) mutate(place);
    }
    return toText(tree);
  });

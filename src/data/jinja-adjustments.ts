/**
 * @file Changes to a parsed template, where the Jinja library gives other text without a word.
 *
 * Jinja loops over an undefined variable no times and filters it as an empty list; the library fails.
 * What `{{ … }}`, `~` and filters of texts take is Python's text; the library writes JSON, and nothing
 * for none. `+` adds no text to anything else; the library does. Syntax trees are changed in place;
 * nodes are made by parsing, since the library does not export their classes.
 */

/** Name of the function that gives the text of a value. */
export const TEXT_FUNCTION = '__spillway_text';

/** Name of the function that gives the text of a value without the spaces around it. */
export const TRIM_FUNCTION = '__spillway_trim';

/** Filters that take the text of any value. */
const TEXT_FILTERS = new Set(['string', 'upper', 'lower', 'title', 'capitalize']);

/** Filters that take an undefined value as an empty list. */
const LIST_FILTERS = new Set(
  'map select reject selectattr rejectattr list length count join unique'.split(' '),
);

/** Parses a template. */
export type ParseTemplate = (source: string) => object;

type Node = Record<string, unknown> & { readonly type: string };

/** Node types that write nothing or write what is already text. */
const WRITTEN_AS_IS = new Set([
  'If',
  'For',
  'Break',
  'Continue',
  'Set',
  'Macro',
  'Comment',
  'CallStatement',
  'FilterStatement',
  'StringLiteral',
]);

/** Lists of nodes whose values are written. */
const BLOCKS = ['body', 'alternate', 'defaultBlock'];

/** Changes `tree`, of which nothing else holds a part. */
export function adjustTemplate(tree: object, parse: ParseTemplate): void {
  const only = (source: string) => (parse(source) as { readonly body: readonly Node[] }).body[0]!;
  const text = (operand: unknown) =>
    Object.assign(only(`{{ ${TEXT_FUNCTION}(x) }}`), { args: [operand] });
  const orEmpty = (operand: unknown) => Object.assign(only('{{ x | default([]) }}'), { operand });
  const adjust = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    const children = value instanceof Map ? [...value.keys(), ...value.values()] : undefined;
    for (const child of children ?? (Object.values(value) as unknown[])) adjust(child);
    if (!isNode(value)) return;
    for (const name of BLOCKS) {
      const block = value[name];
      if (!Array.isArray(block)) continue;
      value[name] = (block as Node[]).map((item) =>
        WRITTEN_AS_IS.has(item.type) ? item : text(item),
      );
    }
    if (value.type === 'For') {
      const iterable = value['iterable'] as Node;
      // In `for x in xs if …` the iterable selects from `lhs`.
      if (iterable.type === 'SelectExpression') iterable['lhs'] = orEmpty(iterable['lhs']);
      else value['iterable'] = orEmpty(iterable);
    } else if (value.type === 'BinaryExpression' && nameOf(value['operator']) === '~') {
      value['left'] = text(value['left']);
      value['right'] = text(value['right']);
    } else if (value.type === 'FilterExpression') {
      adjustFilter(value);
    }
  };
  const adjustFilter = (value: Node): void => {
    const filter = value['filter'] as Node;
    const name = nameOf(filter['callee'] ?? filter) as string;
    const { operand } = value;
    if (TEXT_FILTERS.has(name)) value['operand'] = text(operand);
    else if (LIST_FILTERS.has(name)) value['operand'] = orEmpty(operand);
    else if (name === 'trim') {
      // A call in its place: the library's own takes other characters for spaces.
      const { callee } = only(`{{ ${TRIM_FUNCTION}(x) }}`);
      const more = (filter['args'] as unknown[] | undefined) ?? [];
      Object.assign(value, { type: 'CallExpression', callee, args: [operand, ...more] });
    }
  };
  adjust(tree);
}

function isNode(value: object): value is Node {
  return 'type' in value && typeof value.type === 'string';
}

/** Of an identifier or an operator. */
function nameOf(value: unknown): unknown {
  return typeof value === 'object' && value !== null && 'value' in value ? value.value : undefined;
}

/**
 * @file Changes to a parsed template, where the Jinja library gives other text without a word.
 *
 * Jinja loops over an undefined variable no times; the library fails. What `{{ … }}`, `~` and the
 * filter `string` write is Python's text; the library writes JSON, and nothing for none. Syntax trees
 * are changed in place; nodes are made by parsing, since the library does not export their classes.
 */

/** Name of the function that gives the text of a value. */
export const TEXT_FUNCTION = '__spillway_text';

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
    } else if (value.type === 'FilterExpression' && nameOf(value['filter']) === 'string') {
      value['operand'] = text(value['operand']);
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

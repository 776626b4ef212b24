/**
 * @file A strict reader of our pages: every tag is one that we write, closed where it must be, and
 * nothing in it leads elsewhere.
 */

/** Tags that a report has. */
const KNOWN = new Set([
  ...['html', 'head', 'meta', 'title', 'style', 'body', 'main', 'h1', 'h2', 'h3', 'p', 'code'],
  ...['span', 'div', 'dl', 'dt', 'dd', 'ul', 'li', 'details', 'summary'],
  ...['table', 'tr', 'th', 'td', 'figure', 'figcaption', 'svg', 'text'],
  ...['line', 'path', 'circle', 'rect'],
]);

const KNOWN_ATTRIBUTES = new Set([
  ...['lang', 'charset', 'http-equiv', 'content', 'name', 'class', 'scope', 'title', 'role'],
  ...['aria-label', 'viewBox', 'd', 'x', 'y', 'x1', 'x2', 'y1', 'y2', 'cx', 'cy', 'r'],
  ...['width', 'height', 'tabindex', 'aria-hidden'],
]);

const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  '#39': "'",
  '#96': '`',
};

/** The text that escaped HTML shows. */
export function decode(escaped: string): string {
  return escaped.replaceAll(/&(#?\w+);/g, (_, name: string) => ENTITIES[name]!);
}

/** What a person reads; sections of the page by heading. */
export interface CheckedPage {
  readonly text: string;
  /** Numbers of elements by tag. */
  readonly counts: ReadonlyMap<string, number>;
  /** What images are called by those who do not see them. */
  readonly labels: readonly string[];
}

/** Checks a page. @throws an Error that says what is wrong */
export function checkPage(page: string): CheckedPage {
  if (!page.startsWith('<!doctype html>')) throw new Error('no doctype');
  const rest = page.slice('<!doctype html>'.length);
  const open: string[] = [];
  const counts = new Map<string, number>();
  const labels: string[] = [];
  let text = '';
  let position = 0;
  for (const match of rest.matchAll(
    /<(\/?)([a-z][a-z0-9]*)((?:\s+[\w-]+="[^"<>]*")*)\s*(\/?)>/gi,
  )) {
    const [tag, close, name = '', attributes = '', selfClosed] = match;
    text += readText(rest.slice(position, match.index), open.at(-1));
    position = match.index + tag.length;
    if (!KNOWN.has(name)) throw new Error(`unknown tag ${tag}`);
    for (const [, attribute] of attributes.matchAll(/([\w-]+)="/g)) {
      if (!KNOWN_ATTRIBUTES.has(attribute!)) throw new Error(`unknown attribute in ${tag}`);
    }
    if (name === 'svg' && close !== '/') labels.push(labelOf(tag));
    if (close === '/') {
      const last = open.pop();
      if (last !== name) throw new Error(`</${name}> closes <${last}>`);
      text += ' ';
    } else if (selfClosed === '') {
      open.push(name);
    }
    if (close !== '/') counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  text += readText(rest.slice(position), undefined);
  if (open.length > 0) throw new Error(`unclosed ${open.join(' ')}`);
  return {
    text: text.replaceAll(/\s+/g, ' '),
    counts,
    labels: labels.filter((label) => label !== ''),
  };
}

/** Every image has a name, or is left out by readers. */
function labelOf(tag: string): string {
  if (/ aria-hidden="true"/.test(tag)) return '';
  const [, label = ''] = / role="img" aria-label="([^"]+)"/.exec(tag.replaceAll(/\s+/g, ' ')) ?? [];
  if (label === '') throw new Error(`an image without a name: ${tag}`);
  return decode(label);
}

function readText(raw: string, inside: string | undefined): string {
  if (inside === 'style') {
    if (/url\(|@import|[<>\\]/.test(raw)) throw new Error('a style sheet that asks for more');
    return '';
  }
  if (/[<>"'`]/.test(raw)) throw new Error(`unescaped text: ${raw}`);
  return decode(raw);
}

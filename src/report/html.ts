/**
 * @file HTML from template literals: everything that is filled in is escaped, unless it is HTML made
 * here.
 *
 * Safe in text and in quoted attributes; nothing is ever filled into a script, a style or a tag.
 */

/** HTML that needs no escaping. Only `html` makes it. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** What may be filled in; lists are joined. */
export type Filling = string | number | Html | readonly Filling[] | undefined;

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
  '`': '&#96;',
};

/** What no HTML may hold: controls but for tab and newline, and halves of surrogate pairs. */
const FORBIDDEN = /[^\P{Cc}\t\n]|\p{Cs}/gu;

function fill(filling: Filling): string {
  if (filling === undefined) return '';
  if (filling instanceof Html) return filling.text;
  if (typeof filling === 'object') return filling.map(fill).join('');
  return String(filling)
    .replaceAll(FORBIDDEN, '\ufffd')
    .replaceAll(/[&<>"'`]/g, (character) => ESCAPES[character]!);
}

/** HTML of a template literal. */
export function html(parts: TemplateStringsArray, ...fillings: readonly Filling[]): Html {
  return new Html(parts.map((part, index) => part + fill(fillings[index])).join(''));
}

/**
 * @file Fenced code blocks of a Markdown section.
 */

/** One block. */
export interface CodeBlock {
  readonly language: string;
  /** What follows the language on the fence, which readers do not see. */
  readonly note: string;
  readonly text: string;
}

/** The blocks below the heading `## heading`, up to the next of its level, in order. */
export function blocksOf(markdown: string, heading: string): CodeBlock[] {
  const start = markdown.indexOf(`\n## ${heading}\n`);
  if (start < 0) throw new Error(`there is no section "${heading}"`);
  const rest = markdown.slice(start + 1);
  const end = rest.indexOf('\n## ', 1);
  const section = end < 0 ? rest : rest.slice(0, end);
  return [...section.matchAll(/^```(\w+)(?: ([^\n]*))?\n(.*?)^```$/gms)].map(
    ([, language = '', note = '', text = '']) => ({ language, note, text }),
  );
}

/** The form of a line: numbers, sizes and gaps look all alike. */
export function formOf(line: string): string {
  return line
    .replaceAll(/\d[\d,.]*(e[+-]\d+)?/g, '#')
    .replaceAll(/# ([KMGT]i)?B\b/g, '# B')
    .replaceAll(/\s+/g, ' ')
    .trim();
}

/**
 * The first line of `shown` whose form does not come next in `printed`, or undefined. A line `…`
 * stands for any number of lines.
 */
export function firstForeignLine(shown: string, printed: string): string | undefined {
  const lines = printed.split('\n').map(formOf);
  let at = 0;
  let skips = false;
  for (const line of shown.trimEnd().split('\n')) {
    if (line === '…') {
      skips = true;
      continue;
    }
    const next = lines.indexOf(formOf(line), at);
    if (next < 0 || (next > at && !skips)) return line;
    at = next + 1;
    skips = false;
  }
  return undefined;
}

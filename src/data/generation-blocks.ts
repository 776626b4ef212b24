/**
 * @file `{% generation %}` … `{% endgeneration %}` of chat templates, as call blocks.
 *
 * transformers parses the tag into a call block whose caller notes where its text begins and ends.
 * The Jinja library only drops the tags, so the source is rewritten before: a call block has the
 * same scoping, and being a block tag it keeps what `-`, trim_blocks and lstrip_blocks do to the
 * white space around it.
 */

/** Name of the macro that the rewritten tags call; no variable of a template is called so. */
export const GENERATION_MACRO = '__spillway_generation';

/** Defines the macro: the caller's text between two marks, which are variables. */
export const GENERATION_PRELUDE = `{% macro ${GENERATION_MACRO}() %}{{ __spillway_open }}{{ caller() }}{{ __spillway_close }}{% endmacro %}`;

/** A template whose generation tags are call blocks. */
export interface RewrittenTemplate {
  readonly source: string;
  /** Whether there was a generation tag. */
  readonly marksGenerations: boolean;
}

const OPENING = /\{[#%{]/g;
const GENERATION_TAG = /\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}/y;
const SPELLED_TAG = /.\{%-?\s*(?:end)?generation\s*-?%\}/s;
const STRING = /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/sy;

/** Rewrites the tags, and in strings their spelling, which the library would drop there as well. */
export function rewriteGenerationBlocks(source: string): RewrittenTemplate {
  const parts: string[] = [];
  let done = 0;
  let at = 0;
  let marksGenerations = false;
  for (;;) {
    OPENING.lastIndex = at;
    const opening = OPENING.exec(source);
    if (opening === null) break;
    GENERATION_TAG.lastIndex = opening.index;
    const tag = GENERATION_TAG.exec(source);
    if (tag === null) {
      at = endOfTag(source, opening.index);
      const other = source.slice(opening.index, at);
      if (source[opening.index + 1] !== '#' && SPELLED_TAG.test(other)) {
        // Within a tag this can only stand in a string.
        parts.push(source.slice(done, opening.index), spellOtherwise(other));
        done = at;
      }
      continue;
    }
    const [all, before = '', end, after = ''] = tag;
    const name = end === undefined ? `call ${GENERATION_MACRO}()` : 'endcall';
    parts.push(source.slice(done, opening.index), `{%${before} ${name} ${after}%}`);
    at = opening.index + all.length;
    done = at;
    marksGenerations = true;
  }
  parts.push(source.slice(done));
  return { source: parts.join(''), marksGenerations };
}

/** The first two characters are the tag's own. */
function spellOtherwise(tag: string): string {
  return tag.slice(0, 2) + tag.slice(2).replaceAll(/\{%(?=-?\s*(?:end)?generation)/g, '{\\x25');
}

/** The index after the tag that opens at `start`; the end of the source when it stays open. */
function endOfTag(source: string, start: number): number {
  const kind = source[start + 1];
  if (kind === '#') {
    const end = source.indexOf('#}', start + 2);
    return end < 0 ? source.length : end + 2;
  }
  const closing = kind === '%' ? '%}' : '}}';
  let depth = 0;
  let at = start + 2;
  while (at < source.length) {
    const character = source[at];
    if (depth === 0 && source.startsWith(closing, at)) return at + 2;
    if (character === "'" || character === '"') {
      STRING.lastIndex = at;
      const text = STRING.exec(source);
      at += text === null ? 1 : text[0].length;
      continue;
    }
    if (character === '{') depth += 1;
    if (character === '}' && depth > 0) depth -= 1;
    at += 1;
  }
  return source.length;
}

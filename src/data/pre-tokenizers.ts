/**
 * @file Pre-tokenizers whose pieces the tokenizer library forms otherwise than the Rust library.
 *
 * JavaScript's `\s` holds U+FEFF and not U+0085, its `\w` and `\d` are ASCII; the library leaves out
 * most behaviours of Split and Punctuation. Instances are changed in place.
 */
import { isObject } from './tokenizer-files.js';

/** A pre-tokenizer of the library. */
interface PreTokenizer {
  /** Of ByteLevel and Split. */
  pattern?: RegExp | null;
  pre_tokenize_text: (text: string) => string[];
  /** Of Sequence, in order. */
  readonly tokenizers?: readonly (PreTokenizer | null)[];
}

/** What becomes of the parts that a pattern matches: `SplitDelimiterBehavior`. */
const BEHAVIORS = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'];

/** GPT-2's words. */
const BYTE_LEVEL =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}';
const WORDS = new RegExp(`[${WORD}]+|[^${WORD}\\p{White_Space}]+`, 'gu');
const SPACE = /\p{White_Space}/gu;
const DIGIT = /\p{N}/gu;
/** ASCII symbols count as punctuation. */
const PUNCTUATION = /[\p{P}$+<=>^`|~]/gu;

/**
 * Makes `made` and its parts split as `described` says.
 *
 * @param made what the library made of `described`, the `pre_tokenizer` of a tokenizer.json
 */
export function correctPreTokenizer(made: unknown, described: unknown): void {
  if (!isObject(described) || !isPreTokenizer(made)) return;
  const parts = described['pretokenizers'];
  if (Array.isArray(parts)) {
    for (const [index, part] of (parts as unknown[]).entries()) {
      correctPreTokenizer(made.tokenizers?.[index], part);
    }
    return;
  }
  switch (described['type']) {
    case 'ByteLevel':
      made.pattern = BYTE_LEVEL;
      break;
    case 'Whitespace':
      made.pre_tokenize_text = (text) => text.match(WORDS) ?? [];
      break;
    case 'WhitespaceSplit':
      made.pre_tokenize_text = (text) => pieces(text, SPACE, 'Removed');
      break;
    case 'BertPreTokenizer':
      made.pre_tokenize_text = (text) =>
        pieces(text, SPACE, 'Removed').flatMap((word) => pieces(word, PUNCTUATION, 'Isolated'));
      break;
    case 'Digits': {
      const behavior = described['individual_digits'] === true ? 'Isolated' : 'Contiguous';
      made.pre_tokenize_text = (text) => pieces(text, DIGIT, behavior);
      break;
    }
    case 'Punctuation': {
      const behavior = behaviorOf(described['behavior'] ?? 'Isolated');
      made.pre_tokenize_text = (text) => pieces(text, PUNCTUATION, behavior);
      break;
    }
    case 'Split': {
      const { pattern } = made;
      const behavior = behaviorOf(described['behavior']);
      const inverted = described['invert'] === true;
      // These two the library does, and faster.
      const isDone = inverted ? behavior === 'Removed' : behavior === 'Isolated';
      if (isDone || !(pattern instanceof RegExp)) break;
      made.pre_tokenize_text = (text) => pieces(text, pattern, behavior, inverted);
      break;
    }
    default:
  }
}

function isPreTokenizer(value: unknown): value is PreTokenizer {
  // Its instances are functions.
  return typeof value === 'function' && 'pre_tokenize_text' in value;
}

/** Files spell behaviours with and without capitals. @throws RangeError for one that is unknown */
function behaviorOf(value: unknown): string {
  const name = BEHAVIORS.find((known) => known.toLowerCase() === String(value).toLowerCase());
  if (name === undefined)
    throw new RangeError(`pre_tokenizer has the unknown behavior ${String(value)}`);
  return name;
}

/** A part of a text, and whether it is a delimiter. */
interface Part {
  text: string;
  readonly matches: boolean;
}

/** The text split as tokenizers' `NormalizedString::split` does; none is empty. */
function pieces(text: string, pattern: RegExp, behavior: string, inverted = false): string[] {
  const parts = partsOf(text, pattern).map(({ text: part, matches }): Part => ({
    text: part,
    matches: matches !== inverted,
  }));
  switch (behavior) {
    case 'Removed':
      return parts.filter(({ matches }) => !matches).map((part) => part.text);
    case 'MergedWithPrevious':
      return merged(parts, (part, before) => part.matches && !before.matches);
    case 'MergedWithNext':
      return merged(parts, (part, before) => before.matches && !part.matches);
    case 'Contiguous':
      return merged(parts, (part, before) => before.matches === part.matches);
    default:
      return parts.map((part) => part.text);
  }
}

/** Matches of a global pattern and what lies between them. */
function partsOf(text: string, pattern: RegExp): Part[] {
  const parts: Part[] = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > at) parts.push({ text: text.slice(at, match.index), matches: false });
    if (match[0] !== '') parts.push({ text: match[0], matches: true });
    at = match.index + match[0].length;
  }
  if (at < text.length) parts.push({ text: text.slice(at), matches: false });
  return parts;
}

/** Parts, each joined to the one before where `joins` says so of the two. */
function merged(parts: readonly Part[], joins: (part: Part, before: Part) => boolean): string[] {
  const texts: string[] = [];
  for (const [index, part] of parts.entries()) {
    const before = parts[index - 1];
    if (before !== undefined && joins(part, before)) texts.push(`${texts.pop()!}${part.text}`);
    else texts.push(part.text);
  }
  return texts;
}

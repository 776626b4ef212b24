/**
 * @file Which bytes of a text each of its tokens stands for.
 *
 * The tokenizer library gives no offsets, so tokens are matched with the text from left to right by
 * what they spell. Every byte must be accounted for, which proves the match; a text that the
 * tokenizer has rewritten in another way than those known here has no offsets. The rules for inserted
 * spaces and for `trim_offsets` are those of the Rust library.
 */

/** How tokens spell text. */
export interface TokenSpelling {
  /** Byte-level alphabet (GPT-2's); otherwise "▁" is a space and "<0xE2>" a byte. */
  readonly byteLevel: boolean;
  /** A space is put before each stretch between added tokens, even before a space. */
  readonly prepends: boolean;
  /** Tokens that stand for themselves. */
  readonly isAdded: (token: string) => boolean;
  /** The post-processor takes spaces off both ends of an offset. */
  readonly trim: { readonly addPrefixSpace: boolean } | undefined;
}

const SPACE = 0x20;
const SPACE_SYMBOL = '\u2581';
/** Of both alphabets. */
const SPACE_SYMBOLS = [SPACE_SYMBOL, '\u0120'];
const BYTE_TOKEN = /^<0x([0-9A-F]{2})>$/;

/** A character with the marks on it, or Hangul letters that may join: what normal forms act on. */
const CLUSTER = /[\u1100-\u11ff]+|\P{M}\p{M}*|\p{M}+/gsu;

/** Finds tokens of one tokenizer in texts. */
export class TokenAligner {
  readonly #spelling: TokenSpelling;
  /** What tokens spell; at most twice as many as the vocabulary has. */
  readonly #bytes = new Map<string, Uint8Array>();

  constructor(spelling: TokenSpelling) {
    this.#spelling = spelling;
  }

  /** Start and end of each token in UTF-8 bytes of `text`, alternating; undefined: no match. */
  offsets(text: string, tokens: readonly string[]): Int32Array | undefined {
    const offsets = this.#match(Buffer.from(text), tokens) ?? this.#matchNormalized(text, tokens);
    const { trim } = this.#spelling;
    if (offsets !== undefined && trim !== undefined) {
      trimSpaces(offsets, tokens, trim.addPrefixSpace);
    }
    return offsets;
  }

  #match(text: Buffer, tokens: readonly string[]): Int32Array | undefined {
    const offsets = new Int32Array(2 * tokens.length);
    let at = 0;
    let afterAdded = false;
    for (const [index, token] of tokens.entries()) {
      const added = this.#spelling.isAdded(token);
      const first = index === 0 || afterAdded;
      const endFrom = (from: number) =>
        added
          ? literalEnd(text, from, Buffer.from(token))
          : this.#plainEnd(text, from, token, first);
      let start = at;
      let end = endFrom(start);
      if (end < 0 && (added || afterAdded)) {
        // An added token may swallow white space on either side (lstrip, rstrip).
        start = skipSpace(text, at);
        end = endFrom(start);
      }
      if (end < 0) return undefined;
      // An inserted space belongs to the character that it stands before.
      offsets[2 * index] = start;
      offsets[2 * index + 1] = end > start ? end : endOfCharacter(text, start);
      at = end;
      afterAdded = added;
    }
    if (afterAdded) at = skipSpace(text, at);
    return at === text.length ? offsets : undefined;
  }

  /** Matches with the text in normal form C or KC, and leads back character by character. */
  #matchNormalized(text: string, tokens: readonly string[]): Int32Array | undefined {
    for (const form of ['NFC', 'NFKC'] as const) {
      const clusters = text.match(CLUSTER) ?? [];
      const normal = clusters.map((cluster) => cluster.normalize(form));
      const joined = normal.join('');
      if (joined === text || joined !== text.normalize(form)) continue;
      const offsets = this.#match(Buffer.from(joined), tokens);
      if (offsets === undefined) continue;
      const back = backFromNormal(clusters, normal, Buffer.byteLength(joined));
      return offsets.map((offset, index) => back[index % 2]![offset]!);
    }
    return undefined;
  }

  /** Where a token of the vocabulary ends that begins at `at`; -1: the text goes on otherwise. */
  #plainEnd(text: Buffer, at: number, token: string, first: boolean): number {
    if (!first || !SPACE_SYMBOLS.includes(token.charAt(0))) return this.#end(text, at, token);
    // The first token may begin with an inserted space.
    const inserted = this.#end(text, at, token.slice(1));
    if (this.#spelling.prepends) return inserted;
    const plain = this.#end(text, at, token);
    return plain < 0 ? inserted : plain;
  }

  #end(text: Buffer, at: number, token: string): number {
    let bytes = this.#bytes.get(token);
    if (bytes === undefined) {
      bytes = this.#spelling.byteLevel ? byteLevelBytes(token) : spelledBytes(token);
      this.#bytes.set(token, bytes);
    }
    const end = literalEnd(text, at, bytes);
    if (end >= 0 || this.#spelling.byteLevel || !token.includes(SPACE_SYMBOL)) return end;
    return mixedEnd(text, at, token);
  }
}

function literalEnd(text: Buffer, at: number, bytes: Uint8Array): number {
  const end = at + bytes.length;
  if (end > text.length) return -1;
  for (let index = 0; index < bytes.length; index += 1) {
    if (text[at + index] !== bytes[index]) return -1;
  }
  return end;
}

function spelledBytes(token: string): Uint8Array {
  const byte = BYTE_TOKEN.exec(token);
  if (byte !== null) return Uint8Array.of(Number.parseInt(byte[1]!, 16));
  return Buffer.from(token.replaceAll(SPACE_SYMBOL, ' '));
}

/** Where some of a token's "▁" are spaces of the text and others stand in it as such. */
function mixedEnd(text: Buffer, at: number, token: string): number {
  let end = at;
  for (const part of token.split(/(▁)/)) {
    const spaced = part === SPACE_SYMBOL && text[end] === SPACE;
    end = spaced ? end + 1 : literalEnd(text, end, Buffer.from(part));
    if (end < 0) return -1;
  }
  return end;
}

/** For each byte boundary of the normal text: the boundary as a token's start, and as its end. */
function backFromNormal(
  clusters: readonly string[],
  normal: readonly string[],
  normalBytes: number,
): readonly [Int32Array, Int32Array] {
  const starts = new Int32Array(normalBytes + 1);
  const ends = new Int32Array(normalBytes + 1);
  let from = 0;
  let to = 0;
  clusters.forEach((cluster, index) => {
    const bytes = Buffer.byteLength(cluster);
    const length = Buffer.byteLength(normal[index]!);
    const same = cluster === normal[index];
    for (let byte = 0; byte < length; byte += 1) {
      starts[to + byte] = same ? from + byte : from;
      ends[to + byte + 1] = same ? from + byte + 1 : from + bytes;
    }
    from += bytes;
    to += length;
  });
  starts[to] = from;
  return [starts, ends];
}

/** The Rust library's `process_offsets`. */
function trimSpaces(offsets: Int32Array, tokens: readonly string[], addPrefixSpace: boolean): void {
  for (const [index, token] of tokens.entries()) {
    let start = offsets[2 * index]!;
    let end = offsets[2 * index + 1]!;
    let leading = spaces(/^[\u0120\s]+/.exec(token));
    const trailing = spaces(/[\u0120\s]+$/.exec(token));
    if (leading > 0) {
      if (addPrefixSpace && (index === 0 || start === 0)) leading -= 1;
      start = Math.min(start + leading, end);
    }
    if (trailing > 0 && end >= trailing) end = Math.max(end - trailing, start);
    offsets.set([start, end], 2 * index);
  }
}

function spaces(found: RegExpExecArray | null): number {
  return found === null ? 0 : Buffer.byteLength(found[0].replaceAll('\u0120', ' '));
}

/** The index after ASCII white space at `at`. */
function skipSpace(text: Buffer, at: number): number {
  let index = at;
  while (index < text.length && (text[index] === SPACE || isLineSpace(text[index]!))) index += 1;
  return index;
}

function isLineSpace(byte: number): boolean {
  return byte >= 0x09 && byte <= 0x0d;
}

function endOfCharacter(text: Buffer, at: number): number {
  let end = Math.min(at + 1, text.length);
  while (end < text.length && (text[end]! & 0xc0) === 0x80) end += 1;
  return end;
}

const BYTE_OF_SYMBOL = byteLevelAlphabet();

function byteLevelBytes(token: string): Uint8Array {
  const bytes: number[] = [];
  for (const symbol of token) {
    const byte = BYTE_OF_SYMBOL.get(symbol);
    // A symbol outside the alphabet matches no text.
    if (byte === undefined) return Buffer.from(token);
    bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}

/** GPT-2's: printable bytes stand for themselves, the others for characters from U+0100 on. */
function byteLevelAlphabet(): ReadonlyMap<string, number> {
  const alphabet = new Map<string, number>();
  let other = 0x100;
  for (let byte = 0; byte < 256; byte += 1) {
    const printable =
      (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    alphabet.set(String.fromCodePoint(printable ? byte : other), byte);
    if (!printable) other += 1;
  }
  return alphabet;
}

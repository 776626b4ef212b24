/**
 * @file How deeply YAML is nested, before it is composed: composing `[[[[…` takes time and memory
 * that grow with the square of the depth, and recursion.
 */
import { Lexer, Parser } from 'yaml';

/**
 * Whether `text`, valid YAML or not, ever has more than `limit` nodes open within each other. Stops
 * at the first that is too deep.
 */
export function isYamlDeeper(text: string, limit: number): boolean {
  const parser = new Parser();
  for (const token of new Lexer().lex(text)) {
    // The parser works while it is drained; the documents that it yields are not needed.
    Array.from(parser.next(token));
    if (parser.stack.length > limit) return true;
  }
  return false;
}

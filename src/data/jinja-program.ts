/**
 * @file A chat template as a program of `@huggingface/jinja`, with the globals transformers gives.
 *
 * The library's own globals are not used: its months follow the machine's locale and its range has
 * no bound.
 */
import * as library from '@huggingface/jinja';
import { GENERATION_PRELUDE, rewriteGenerationBlocks } from './generation-blocks.js';
import { teachPythonStrings } from './python-strings.js';
import { strftime } from './strftime.js';

/** What is used of the library. */
interface Scope {
  set(name: string, value: unknown): unknown;
}
interface Library {
  readonly Environment: new () => Scope;
  readonly Interpreter: new (scope: Scope) => { run(program: object): { readonly value: unknown } };
  readonly tokenize: (source: string, options: object) => object;
  readonly parse: (tokens: object) => object;
}

// The library's typings have imports that NodeNext does not resolve.
const { Environment, Interpreter, tokenize, parse } = library as unknown as Library;

teachPythonStrings(new Environment().set('sample', ''));

/** What transformers' Jinja environment is made with. */
const BLOCK_OPTIONS = { trim_blocks: true, lstrip_blocks: true };

/** Longest range of Jinja's sandbox. */
const MAX_RANGE = 100_000;

const PRELUDE = parse(tokenize(GENERATION_PRELUDE, BLOCK_OPTIONS));

/** Written around the text of a generation block. */
export interface GenerationMarks {
  readonly open: string;
  readonly close: string;
}

const NO_MARKS: GenerationMarks = { open: '', close: '' };

/** One parsed template. */
export class JinjaProgram {
  /** Whether it has `{% generation %}`. */
  readonly marksGenerations: boolean;
  readonly #program: object;

  /** Throws plain errors for a source that is no template. */
  constructor(source: string) {
    // Jinja reads every kind of line end as \n.
    const rewritten = rewriteGenerationBlocks(source.replaceAll(/\r\n?/g, '\n'));
    this.marksGenerations = rewritten.marksGenerations;
    this.#program = parse(tokenize(rewritten.source, BLOCK_OPTIONS));
    forgiveUndefinedLoops(this.#program);
  }

  /** The text for `variables`. Throws plain errors, `raise_exception`'s message among them. */
  run(variables: Readonly<Record<string, unknown>>, marks = NO_MARKS): string {
    const scope = new Environment();
    const values = {
      ...globals(),
      ...variables,
      __spillway_open: marks.open,
      __spillway_close: marks.close,
    };
    for (const [name, value] of Object.entries(values)) scope.set(name, value);
    const interpreter = new Interpreter(scope);
    interpreter.run(PRELUDE);
    return String(interpreter.run(this.#program).value);
  }
}

/** Jinja loops over an undefined variable no times, where the library fails. */
function forgiveUndefinedLoops(node: object): void {
  for (const child of Object.values(node) as unknown[]) {
    if (typeof child === 'object' && child !== null) forgiveUndefinedLoops(child);
  }
  if (!('type' in node) || node.type !== 'For' || !('iterable' in node)) return;
  const iterable = node.iterable as object;
  // In `for x in xs if …` the iterable is a selection from `lhs`.
  if ('lhs' in iterable && 'test' in iterable) iterable.lhs = orEmpty(iterable.lhs as object);
  else node.iterable = orEmpty(iterable);
}

/** `expression | default([])` */
function orEmpty(expression: object): object {
  const source = '{{ x | default([]) }}';
  const program = parse(tokenize(source, BLOCK_OPTIONS)) as { readonly body: readonly object[] };
  return Object.assign(program.body[0]!, { operand: expression });
}

function globals(): Readonly<Record<string, unknown>> {
  const constants = { true: true, false: false, none: null, True: true, False: false, None: null };
  return { ...constants, raise_exception: raise, range, strftime_now: now };
}

function raise(message: unknown): never {
  throw new Error(String(message));
}

function now(format: unknown): string {
  return strftime(String(format), new Date());
}

/** Python's range. */
function range(first: number, second?: unknown, third?: unknown): number[] {
  // The library passes keyword arguments, of which range has none, as an object at the end.
  const bounded = typeof second === 'number';
  const [start, stop] = bounded ? [first, second] : [0, first];
  const step = typeof third === 'number' ? third : 1;
  if (step === 0) throw new Error('range() arg 3 must not be zero');
  const count = Math.max(0, Math.ceil((stop - start) / step));
  if (count > MAX_RANGE) throw new Error(`a range of more than ${MAX_RANGE} numbers`);
  return Array.from({ length: count }, (_, index) => start + index * step);
}

/**
 * @file A chat template as a program of `@huggingface/jinja`, with the globals transformers gives.
 *
 * The library's own globals are not used: its months follow the machine's locale and its range has
 * no bound.
 */
import * as library from '@huggingface/jinja';
import { GENERATION_PRELUDE, rewriteGenerationBlocks } from './generation-blocks.js';
import { adjustTemplate, TEXT_FUNCTION, TRIM_FUNCTION } from './jinja-adjustments.js';
import { jsonOptionsOf, pythonJson } from './python-json.js';
import { strip, teachPythonStrings } from './python-strings.js';
import { pythonText, type RuntimeValue } from './python-text.js';
import { RuntimeValues } from './runtime-values.js';
import { strftime } from './strftime.js';

/** What is used of the library. */
interface Scope {
  set(name: string, value: unknown): RuntimeValue;
  setVariable(name: string, value: object): unknown;
}
interface LibraryInterpreter {
  run(program: object): { readonly value: unknown };
  evaluate(node: object, scope: object): RuntimeValue;
  evaluateBinaryExpression(node: BinaryNode, scope: object): RuntimeValue;
  applyFilter(operand: RuntimeValue, filter: FilterNode, scope: object): RuntimeValue;
  evaluateArguments(nodes: readonly object[], scope: object): Arguments;
}
/** Positional arguments, and those with a name. */
type Arguments = readonly [readonly RuntimeValue[], ReadonlyMap<string, RuntimeValue>];
/** A name, or a call of one. */
interface FilterNode {
  readonly value?: string;
  readonly callee?: { readonly value?: string };
  readonly args?: readonly object[];
}
interface BinaryNode {
  readonly operator: { readonly value: string };
  readonly left: object;
  readonly right: object;
}
interface Library {
  readonly Environment: new () => Scope;
  readonly Interpreter: new (scope: Scope) => LibraryInterpreter;
  readonly tokenize: (source: string, options: object) => object;
  readonly parse: (tokens: object) => object;
}

// The library's typings have imports that NodeNext does not resolve.
const { Environment, Interpreter, tokenize, parse } = library as unknown as Library;

const runtime = new RuntimeValues((value) => new Environment().set('sample', value));
const makeFunction = teachPythonStrings(new Environment().set('sample', ''));

type KeywordArguments = ReadonlyMap<string, RuntimeValue>;

/** What transformers' Jinja environment is made with. */
const BLOCK_OPTIONS = { trim_blocks: true, lstrip_blocks: true };

/** Longest range of Jinja's sandbox. */
const MAX_RANGE = 100_000;

const TEXT = makeFunction(([value]) => pythonText(value!));
const TRIM = makeFunction(([value, characters]) => {
  // Keyword arguments come as a map.
  const given: unknown = characters?.value;
  const named = given instanceof Map ? (given as KeywordArguments).get('chars')?.value : given;
  return strip(pythonText(value!), named, true, true);
});

const PRELUDE = parseTemplate(GENERATION_PRELUDE);

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
    this.#program = parseTemplate(rewritten.source);
    adjustTemplate(this.#program, parseTemplate);
  }

  /** The text for `variables`. Throws plain errors, `raise_exception`'s message among them. */
  run(variables: Readonly<Record<string, unknown>>, marks = NO_MARKS): string {
    const scope = new Environment();
    for (const [name, value] of Object.entries(globals())) scope.set(name, value);
    const values = { ...variables, __spillway_open: marks.open, __spillway_close: marks.close };
    for (const [name, value] of Object.entries(values)) {
      scope.setVariable(name, runtime.of(value));
    }
    scope.setVariable(TEXT_FUNCTION, TEXT);
    scope.setVariable(TRIM_FUNCTION, TRIM);
    const interpreter = new PythonInterpreter(scope);
    interpreter.run(PRELUDE);
    return String(interpreter.run(this.#program).value);
  }
}

/** An operand whose value is known. */
class Evaluated {
  readonly type = 'Evaluated';
  constructor(readonly value: RuntimeValue) {}
}

/**
 * Refuses, as Python does, to add a text and something else, which the library writes as it comes, and
 * filters numbers as Python does.
 */
class PythonInterpreter extends Interpreter {
  override evaluate(node: object, scope: object): RuntimeValue {
    return node instanceof Evaluated ? node.value : super.evaluate(node, scope);
  }

  override evaluateBinaryExpression(node: BinaryNode, scope: object): RuntimeValue {
    const { operator } = node;
    if (operator.value !== '+') return super.evaluateBinaryExpression(node, scope);
    const left = this.evaluate(node.left, scope);
    const right = this.evaluate(node.right, scope);
    if ((left.type === 'StringValue') !== (right.type === 'StringValue')) {
      throw new TypeError(`a ${left.type} and a ${right.type} cannot be added`);
    }
    const known = { operator, left: new Evaluated(left), right: new Evaluated(right) };
    return super.evaluateBinaryExpression(known, scope);
  }

  override applyFilter(operand: RuntimeValue, filter: FilterNode, scope: object): RuntimeValue {
    const given = () => this.evaluateArguments(filter.args ?? [], scope);
    switch (filter.callee?.value ?? filter.value) {
      case 'tojson':
        return runtime.text(pythonJson(operand, jsonOptionsOf(...given())));
      case 'int':
        if (operand.type !== 'FloatValue') break;
        return runtime.integer(Math.trunc(operand.value as number));
      case 'join':
        if (!Array.isArray(operand.value)) break;
        return runtime.text(joined(operand.value as readonly RuntimeValue[], ...given()));
    }
    return super.applyFilter(operand, filter, scope);
  }
}

/** Jinja's `join`: the texts of the items. */
function joined(
  items: readonly RuntimeValue[],
  [first, ...more]: readonly RuntimeValue[],
  named: ReadonlyMap<string, RuntimeValue>,
): string {
  const unknown = [...named.keys()].find((name) => name !== 'd' && name !== 'separator');
  if (unknown !== undefined || more.length > 0) {
    throw new TypeError(`join is supported with one argument, not with ${unknown ?? 'more'}`);
  }
  const separator = first ?? named.get('d') ?? named.get('separator');
  return items.map(pythonText).join(separator === undefined ? '' : pythonText(separator));
}

function parseTemplate(source: string): object {
  return parse(tokenize(source, BLOCK_OPTIONS));
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

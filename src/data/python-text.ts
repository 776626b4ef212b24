/**
 * @file Python's `str` and `repr` of the values that a template holds.
 */

/** A value of the Jinja library at run time, by `type`. */
export interface RuntimeValue {
  readonly type: string;
  readonly value: unknown;
}

/** From this exponent on, and below -4, Python writes floats with an exponent. */
const FIRST_LARGE_EXPONENT = 16;

/** What `{{ value }}` writes. @throws TypeError for functions and the like */
export function pythonText(value: RuntimeValue): string {
  if (value.type === 'StringValue') return value.value as string;
  return value.type === 'UndefinedValue' ? '' : pythonRepr(value);
}

function pythonRepr(value: RuntimeValue): string {
  switch (value.type) {
    case 'StringValue':
      return quoted(value.value as string);
    case 'IntegerValue':
      return integerText(value.value as number | bigint);
    case 'FloatValue':
      return floatText(value.value as number);
    case 'BooleanValue':
      return value.value === true ? 'True' : 'False';
    case 'NullValue':
      return 'None';
    case 'UndefinedValue':
      return 'Undefined';
    case 'ArrayValue':
      return `[${items(value).join(', ')}]`;
    case 'TupleValue': {
      const parts = items(value);
      return parts.length === 1 ? `(${parts.join('')},)` : `(${parts.join(', ')})`;
    }
    case 'ObjectValue': {
      const entries = [...(value.value as ReadonlyMap<string, RuntimeValue>)];
      return `{${entries.map(([key, item]) => `${quoted(key)}: ${pythonRepr(item)}`).join(', ')}}`;
    }
    default:
      throw new TypeError(`a ${value.type} has no text`);
  }
}

function items(value: RuntimeValue): string[] {
  return (value.value as readonly RuntimeValue[]).map(pythonRepr);
}

/** Digits, never an exponent. */
export function integerText(value: number | bigint): string {
  return BigInt(value).toString();
}

/** Python's `repr` of a float. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value < 0 ? '-inf' : 'inf';
  const [, exponent = '0'] = value.toExponential().split('e');
  const power = Number(exponent);
  if (value !== 0 && (power < -4 || power >= FIRST_LARGE_EXPONENT)) {
    return value.toExponential().replace(/e([+-])(\d)$/, 'e$10$2');
  }
  if (Object.is(value, -0)) return '-0.0';
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  let result = quote;
  for (const symbol of text) result += escaped(symbol, quote);
  return result + quote;
}

function escaped(symbol: string, quote: string): string {
  if (symbol === quote || symbol === '\\') return `\\${symbol}`;
  if (symbol === ' ' || !/[\p{C}\p{Z}]/u.test(symbol)) return symbol;
  const named = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }[symbol];
  if (named !== undefined) return named;
  const code = symbol.codePointAt(0)!;
  const hex = code.toString(16);
  if (code < 0x100) return `\\x${hex.padStart(2, '0')}`;
  return code < 0x10000 ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`;
}

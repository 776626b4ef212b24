// Goal: templates mean what they mean in Jinja as transformers sets it up; what differs is refused.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { JinjaProgram } from '../../src/data/jinja-program.js';
import { withPythonValues } from '../../src/data/python-values.js';
import { strftime } from '../../src/data/strftime.js';

interface Recorded {
  readonly messages: readonly object[];
  readonly data: object;
  readonly expressions: readonly {
    readonly template: string;
    readonly text?: string;
    readonly error?: string;
  }[];
}

interface RecordedDate {
  readonly moment: readonly [number, number, number, number, number, number];
  readonly format: string;
  readonly text: string;
}

function fixture(name: string): unknown {
  const path = new URL(`../../fixtures/chat/${name}`, import.meta.url);
  return JSON.parse(readFileSync(path, 'utf8'));
}

const recorded = fixture('expressions.json') as Recorded;

function render(template: string): string {
  const { messages, data } = recorded;
  return new JinjaProgram(template).run({ messages, data, tools: null });
}

describe('an expression', () => {
  it.each(recorded.expressions)('$template', ({ template, text, error }) => {
    if (error !== undefined) expect(() => render(template)).toThrow();
    else expect(render(template)).toBe(text);
  });

  it('is refused when a range would fill the memory, or a macro calls itself for ever', () => {
    expect(() => render('{% for i in range(10 ** 9) %}{% endfor %}')).toThrow('range');
    expect(() => render('{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}')).toThrow();
  });
});

describe('an expression on numbers as rows spell them', () => {
  const { data, expressions } = fixture('numbers.json') as Recorded & { readonly data: string };
  const values = withPythonValues(data, JSON.parse(data));

  it.each(expressions)('$template', ({ template, text, error }) => {
    const { messages } = recorded;
    const run = () => new JinjaProgram(template).run({ messages, data: values, tools: null });
    if (error !== undefined) expect(run).toThrow();
    else expect(run()).toBe(text);
  });

  it('is refused where whole numbers beyond 2^53 would be rounded', () => {
    for (const template of ['{{ data.id + 1 }}', '{{ data.id / 2 }}', '{{ data.id // 3 }}']) {
      const run = () => new JinjaProgram(template).run({ data: values });
      expect(run).toThrow(TypeError);
    }
  });
});

it.each(fixture('dates.json') as RecordedDate[])(
  'a date as $format',
  ({ moment, format, text }) => {
    const [year, month, day, hour, minute, second] = moment;
    expect(strftime(format, new Date(year, month - 1, day, hour, minute, second))).toBe(text);
  },
);

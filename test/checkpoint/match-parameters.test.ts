// Goal: parameters find their tensors under every known name, and all that does not fit is listed.
import { describe, expect, it } from 'vitest';

import { SpillwayError, formatError } from '../../core/errors.js';
import type { StoredTensor } from '../../src/checkpoint/tensor-files.js';
import { matchParameters, type FileNaming } from '../../src/checkpoint/match-parameters.js';
import type { SafetensorsDtype } from '../../src/checkpoint/safetensors-header.js';
import type { SafetensorsFile } from '../../src/checkpoint/safetensors-reader.js';
import type { ParamSpec } from '../../src/model/block.js';

const GPT2 = {
  'transformer.wte.weight': [7, 4],
  'transformer.h.0.attn.c_attn.weight': [4, 12],
  'transformer.h.0.attn.c_attn.bias': [12],
  'transformer.ln_f.weight': [4],
};

type Shapes = Readonly<Record<string, readonly number[]>>;

function specsOf(shapes: Shapes): ParamSpec[] {
  return Object.entries(shapes).map(([name, shape]) => ({
    name,
    shape,
    init: { kind: 'zeros' },
    decay: true,
  }));
}

function stored(shapes: Shapes, dtype: SafetensorsDtype = 'F32'): Map<string, StoredTensor> {
  // Matching looks at entries only; the file is carried along.
  const file = Object.create(null) as SafetensorsFile;
  return new Map(
    Object.entries(shapes).map(([name, shape]) => [
      name,
      { file, entry: { name, dtype, shape, begin: 0, end: 0 } },
    ]),
  );
}

function rename(shapes: Shapes, change: (name: string) => string): Shapes {
  return Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [change(name), shape]));
}

const withoutPrefix = (name: string): string => name.replace(/^transformer\./, '');

function naming(tied: boolean): FileNaming {
  return {
    fileNames: (param) => [param, withoutPrefix(param)],
    isNonParameter: (name) => name.endsWith('.attn.bias') || (tied && name === 'lm_head.weight'),
  };
}

/** File name of each parameter. */
function match(specs: Shapes, files: Shapes, tied = true): Record<string, string> {
  const matched = matchParameters(specsOf(specs), stored(files), '/m', naming(tied));
  return Object.fromEntries([...matched].map(([name, { entry }]) => [name, entry.name]));
}

function mismatch(specs: Shapes, files: Map<string, StoredTensor>, tied = true): SpillwayError {
  try {
    matchParameters(specsOf(specs), files, '/m', naming(tied));
  } catch (error) {
    if (error instanceof SpillwayError && error.code === 'CHECKPOINT_MISMATCH') return error;
    throw error;
  }
  throw new Error('expected a mismatch');
}

describe('names', () => {
  it('matches equal names', () => {
    expect(match(GPT2, GPT2)).toEqual(Object.fromEntries(Object.keys(GPT2).map((n) => [n, n])));
  });

  it('matches a file of the base model, without the prefix', () => {
    expect(match(GPT2, rename(GPT2, withoutPrefix))).toEqual(
      Object.fromEntries(Object.keys(GPT2).map((name) => [name, withoutPrefix(name)])),
    );
  });

  it('loads silently beside tensors that the model knows to be no parameters', () => {
    const extras = { 'h.0.attn.bias': [1, 1, 8, 8], 'lm_head.weight': [7, 4] };
    expect(Object.keys(match(GPT2, { ...GPT2, ...extras }))).toEqual(Object.keys(GPT2));
  });
});

describe('mismatches', () => {
  it('lists missing, unexpected, wrong-shaped and unreadable tensors in one line', () => {
    const files = stored({
      'transformer.wte.weight': [7, 5],
      'transformer.h.0.attn.c_attn.bias': [12],
      'transformer.h.1.attn.c_attn.bias': [12],
      'transformer.h.0.attn.c_attn.weight': [4, 12],
    });
    const entry = { name: 'transformer.h.0.attn.c_attn.bias', dtype: 'I64' as const };
    const biasTensor = files.get(entry.name)!;
    files.set(entry.name, { ...biasTensor, entry: { ...biasTensor.entry, ...entry } });
    const error = mismatch(GPT2, files);
    const line = formatError(error);
    expect(line).toContain('1 missing: "transformer.ln_f.weight"');
    expect(line).toContain('1 unexpected: "transformer.h.1.attn.c_attn.bias"');
    expect(line).toContain('1 of another shape: "transformer.wte.weight [7, 5] for [7, 4]"');
    expect(line).toContain('1 of an unreadable dtype: "transformer.h.0.attn.c_attn.bias I64"');
    expect(error.facts).toEqual({
      missingCount: 1,
      unexpectedCount: 1,
      wrongShapeCount: 1,
      wrongDtypeCount: 1,
    });
  });

  it('refuses equal sizes in another order of dimensions', () => {
    const files = { ...GPT2, 'transformer.h.0.attn.c_attn.weight': [12, 4] };
    expect(mismatch(GPT2, stored(files)).facts).toEqual({ wrongShapeCount: 1 });
  });

  it('bounds the list and counts the rest', () => {
    const many = Object.fromEntries(
      Array.from({ length: 500 }, (_, layer) => [`transformer.h.${layer}.b`, [1]]),
    );
    const error = mismatch({ ...GPT2, ...many }, stored(GPT2));
    expect(error.message).toContain('500 missing');
    expect(error.message).toContain('and 492 more');
    expect(error.message.length).toBeLessThan(600);
  });

  it('needs lm_head.weight when it is a parameter and refuses it when it is not known', () => {
    const untied = { ...GPT2, 'lm_head.weight': [7, 4] };
    expect(mismatch(untied, stored(GPT2), false).facts).toEqual({ missingCount: 1 });
    expect(mismatch(GPT2, stored(untied), false).facts).toEqual({ unexpectedCount: 1 });
  });

  it('lists a second copy of a tensor under another name', () => {
    const files = { ...GPT2, 'wte.weight': [7, 4] };
    expect(mismatch(GPT2, stored(files)).message).toContain('unexpected: "wte.weight"');
  });
});

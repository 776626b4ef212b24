// Goal: users' blocks and chains are checked before anything runs, and their weights are theirs.
import * as tf from '@tensorflow/tfjs-core';
import { describe, expect, it } from 'vitest';
import type { Block, DenseBlock, ParamSpec, RowBlock } from '../../src/model/block.js';
import { checkChain } from '../../src/model/check-chain.js';
import { defineBlock } from '../../src/model/define-block.js';
import { defineModel } from '../../src/model/define-model.js';

function codeOf(body: () => unknown): unknown {
  try {
    body();
  } catch (error) {
    return (error as { code: unknown }).code;
  }
  return undefined;
}

const hidden = defineBlock({
  name: 'hidden',
  params: { w1: { shape: [4, 8] }, b1: { shape: [8] } },
  reads: ['x'],
  apply: ({ w1, b1 }, _input, { tensors }) =>
    tf.relu(tf.add(tf.matMul(tensors['x'] as tf.Tensor2D, w1 as tf.Tensor2D), b1!)),
});

const loss = defineBlock({
  name: 'loss',
  params: { w2: { shape: [8, 1], trainable: false } },
  shares: ['b1'],
  apply: ({ w2, b1 }, input) => tf.square(tf.matMul(tf.add(input!, b1!), w2!)),
});

describe('defineBlock', () => {
  it('fills in init, decay and uses', () => {
    expect(hidden.owns).toEqual([
      { name: 'w1', shape: [4, 8], init: { kind: 'normal', std: 0.02 }, decay: true },
      { name: 'b1', shape: [8], init: { kind: 'zeros' }, decay: false },
    ]);
    expect(loss.owns[0]!.trainable).toBe(false);
    expect(loss.uses).toEqual(['w2', 'b1']);
    expect(hidden.kindKey).not.toBe(loss.kindKey);
  });

  it('refuses a parameter that is both owned and shared', () => {
    const define = (): unknown =>
      defineBlock({ ...hiddenDefinition(), params: { w: { shape: [1] } }, shares: ['w'] });
    expect(codeOf(define)).toBe('BLOCK_INVALID');
    expect(codeOf(() => defineBlock({ ...hiddenDefinition(), name: '' }))).toBe('BLOCK_INVALID');
  });
});

function hiddenDefinition(): Parameters<typeof defineBlock>[0] {
  return { name: 'b', params: {}, apply: () => tf.scalar(0) };
}

describe('checkChain', () => {
  const spec = (name: string, shape = [2, 2]): ParamSpec => {
    return { name, shape, init: { kind: 'zeros' }, decay: false };
  };
  const dense = (
    name: string,
    owns: ParamSpec[],
    uses = owns.map((own) => own.name),
  ): DenseBlock => {
    return { kind: 'dense', name, kindKey: name, owns, uses, apply: () => [] };
  };
  const gatherOf = (param: string) => ({ param, indices: () => new Int32Array(1) });
  const row = (name: string, owns: ParamSpec[], param: string): RowBlock => {
    return {
      kind: 'row',
      name,
      kindKey: name,
      owns,
      uses: owns.map((own) => own.name),
      gathers: [gatherOf(param)],
      apply: () => [],
      backward: () => [],
    };
  };

  it.each<[string, Block[]]>([
    ['no blocks', []],
    ['two blocks of one name', [dense('a', []), dense('a', [])]],
    ['two owners of a parameter', [dense('a', [spec('w')]), dense('b', [spec('w')])]],
    ['one parameter owned twice', [dense('a', [spec('w'), spec('w')], ['w'])]],
    ['a parameter owned but not used', [dense('a', [spec('w')], [])]],
    ['a parameter used but not owned', [dense('a', [], ['w'])]],
    ['a parameter used twice', [dense('a', [spec('w')], ['w', 'w'])]],
    ['a parameter without a name', [dense('a', [spec('')])]],
    ['a size of zero', [dense('a', [spec('w', [2, 0])])]],
    ['a fractional size', [dense('a', [spec('w', [1.5])])]],
    ['a row block in the middle', [dense('a', []), row('b', [spec('w')], 'w')]],
    ['rows of a vector', [row('a', [spec('w', [4])], 'w')]],
    ['rows of a parameter that is not used', [row('a', [spec('w')], 'v')]],
    [
      'two gathers from one table',
      [
        { ...row('a', [spec('w')], 'w'), gathers: [gatherOf('w'), gatherOf('w')] },
        dense('b', [spec('v')]),
      ],
    ],
  ])('refuses %s', (_title, blocks) => {
    expect(codeOf(() => checkChain(blocks))).toBe('BLOCK_INVALID');
  });

  it('accepts a row block, dense blocks and shared parameters', () => {
    const chain = [row('a', [spec('w')], 'w'), dense('b', [spec('v')], ['v', 'w'])];
    expect(() => checkChain(chain)).not.toThrow();
  });
});

describe('defineModel', () => {
  it('takes given weights and seeds the others', async () => {
    const given = Float32Array.from({ length: 8 }, (_, index) => index);
    const model = defineModel({ name: 'mine', blocks: [hidden, loss], weights: { b1: given } });
    const read = async (param: string, length: number): Promise<Float32Array> => {
      const found = [hidden, loss]
        .flatMap((block) => block.owns)
        .find(({ name }) => name === param);
      const target = new Float32Array(length);
      await (await model.source(found!)).read(1, target);
      return target;
    };
    expect(await read('b1', 7)).toEqual(given.slice(1));
    const seeded = await read('w1', 31);
    expect(seeded.every((value) => value !== 0 && Math.abs(value) < 0.2)).toBe(true);
    await model.close();
  });

  it('refuses weights of unknown parameters and of wrong lengths', () => {
    const define = (weights: Record<string, Float32Array>): unknown =>
      defineModel({ name: 'mine', blocks: [hidden, loss], weights });
    for (const weights of [{ w9: new Float32Array(8) }, { b1: new Float32Array(7) }]) {
      expect(codeOf(() => define(weights as Record<string, Float32Array>))).toBe(
        'CHECKPOINT_MISMATCH',
      );
    }
  });

  it('refuses an invalid chain', () => {
    expect(codeOf(() => defineModel({ name: 'mine', blocks: [loss] }))).toBe('BLOCK_INVALID');
  });
});

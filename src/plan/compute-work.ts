/**
 * @file How much work a compute operation is: a key under which its time is remembered, and its
 * multiply-adds, by which the time of an unmeasured one is estimated.
 *
 * Pure functions. Blocks are opaque, so multiply-adds are counted by shapes: every matrix of a
 * block is applied to every position; a block that has several and gives [B, T, C] attends, which is
 * twice B*T*T*C. Good for scaling from one shape to another, not for a machine's peak rate.
 */
import { assert } from '../../core/errors.js';
import type { Block } from '../model/block.js';
import type { ParameterLayout } from './parameter-layout.js';
import { wholeParams } from './packed-params.js';
import type { Compute } from './step-plan.js';

/** What an operation computes. */
export interface ComputeWork {
  /** Operations with equal keys take equally long per micro-batch. */
  readonly key: string;
  /** Action and kind of block: what is alike but for shapes. */
  readonly kind: string;
  /** Micro-batches that one operation runs over. */
  readonly microBatches: number;
  /** Of all of them, at least 1. */
  readonly multiplyAdds: number;
}

/** What counting needs to know. */
export interface WorkInput {
  readonly blocks: readonly Block[];
  readonly layout: Pick<ParameterLayout, 'params'>;
  readonly dtype: string;
  /** Shape of the output of a block for a micro-batch; `[]` of a tiled one. */
  readonly outputShape: (block: number, microBatch: number) => readonly number[];
}

/** Of a recomputed forward pass and a reverse pass: products with respect to inputs and weights. */
const REVERSE = 3;

/** Elementwise passes over an activation, in multiply-adds per element. */
const ELEMENTWISE = 16;

/** Work that was counted, and what it was counted for. */
interface Counted {
  readonly inputShape: readonly number[];
  readonly shape: readonly number[];
  readonly tile: number;
  readonly work: ComputeWork;
}

const NO_INPUT: readonly number[] = [];

/** Counts compute operations of one plan. */
export function computeWork(input: WorkInput): (action: Compute) => ComputeWork {
  const { blocks, dtype, outputShape } = input;
  // A plan has tens of thousands of operations, of few kinds on each block.
  const counted = new Map<Compute['kind'], Counted[][]>();
  return (action) => {
    const index = blockOf(action, blocks);
    const block = blocks[index]!;
    const isShared = 'microBatches' in action;
    const microBatch = isShared ? action.microBatches[0]! : action.microBatch;
    const microBatchCount = isShared ? action.microBatches.length : 1;
    const inputShape = index === 0 ? NO_INPUT : outputShape(index - 1, microBatch);
    const shape = outputShape(index, microBatch);
    const tile = 'tile' in action ? tileLength(input, index, action.tile) : 0;
    let byBlock = counted.get(action.kind);
    if (byBlock === undefined) counted.set(action.kind, (byBlock = []));
    const some = (byBlock[index] ??= []);
    let known = some.find(
      (one) =>
        areEqual(one.shape, shape) &&
        areEqual(one.inputShape, inputShape) &&
        one.tile === tile &&
        one.work.microBatches === microBatchCount,
    );
    if (known === undefined) {
      const perMicroBatch = multiplyAdds(input, action.kind, block, inputShape, shape, tile);
      const kind = `${action.kind} ${block.kindKey}`;
      const matrices = matricesOf(input, block).map((sizes) => sizes.join('x'));
      const facts = [kind, dtype, inputShape.join('x'), shape.join('x'), tile, ...matrices];
      const work = {
        key: facts.join(' '),
        kind,
        microBatches: microBatchCount,
        multiplyAdds: Math.max(1, perMicroBatch * microBatchCount),
      };
      known = { inputShape, shape, tile, work };
      some.push(known);
    }
    return known.work;
  };
}

/** The block that a compute operation runs. */
function blockOf(action: Compute, blocks: readonly Block[]): number {
  if ('block' in action) return action.block;
  return action.kind === 'rows' || action.kind === 'reverse-rows' ? 0 : blocks.length - 1;
}

function multiplyAdds(
  input: WorkInput,
  kind: Compute['kind'],
  block: Block,
  inputShape: readonly number[],
  shape: readonly number[],
  tile: number,
): number {
  const elements = Math.max(product(inputShape), product(shape));
  const widest = shape.length > 0 ? shape : inputShape;
  const positions = product(widest.slice(0, -1));
  const passes = ELEMENTWISE * elements;
  switch (kind) {
    case 'rows':
    case 'reverse-rows':
    case 'end':
      return elements;
    case 'prepare':
    case 'prepare-last':
      return passes;
    case 'reverse-prepare':
      return REVERSE * passes;
    case 'forward-tile':
      return positions * tile;
    case 'logits-tile':
      return tile;
    case 'backward-tile':
      return REVERSE * positions * tile;
    case 'forward':
    case 'extend':
    case 'reverse': {
      const matrices = matricesOf(input, block);
      const [batch = 0, length = 0, width = 0] = shape.length === 3 ? shape : [];
      const attention = matrices.length > 1 ? 2 * batch * length * length * width : 0;
      const whole = matrices.reduce((sum, sizes) => sum + product(sizes), 0);
      return (positions * whole + attention + passes) * (kind === 'reverse' ? REVERSE : 1);
    }
    default:
      return kind satisfies never;
  }
}

function matricesOf({ layout }: WorkInput, block: Block): (readonly number[])[] {
  return wholeParams(block).flatMap((name) => {
    const shape = layout.params.get(name)?.spec.shape ?? [];
    return shape.length === 2 ? [shape] : [];
  });
}

function tileLength({ blocks, layout }: WorkInput, index: number, tile: number): number {
  const block = blocks[index]!;
  assert(block.kind === 'tiled', 'tiles belong to a tiled block');
  const [rows = 0, columns = 0] = layout.params.get(block.tiledParam)?.spec.shape ?? [];
  return Math.min(block.tileRows, rows - tile * block.tileRows) * columns;
}

function areEqual(a: readonly number[], b: readonly number[]): boolean {
  return a === b || (a.length === b.length && a.every((size, index) => size === b[index]));
}

function product(sizes: readonly number[]): number {
  return sizes.reduce((total, size) => total * size, 1);
}

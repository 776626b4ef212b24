/**
 * @file Shapes of the blocks' inputs, as the micro-batches of a step made them.
 */
import { assert } from '../../core/errors.js';

export class ActivationShapes {
  readonly #shapes = new Map<string, readonly number[]>();

  /** Shape of the input of `block` for a micro-batch of this step. */
  readonly of = (block: number, microBatch: number): readonly number[] => {
    const shape = this.#shapes.get(`${block}/${microBatch}`);
    assert(shape !== undefined, 'the activation has been made', { block, microBatch });
    return shape;
  };

  readonly note = (block: number, microBatch: number, shape: readonly number[]): void => {
    this.#shapes.set(`${block}/${microBatch}`, shape);
  };
}

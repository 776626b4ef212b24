/**
 * @file Activations of an evaluation: they pass from block to block on the device, and leave it when
 * they have been used.
 */
import { assert } from '../../core/errors.js';
import type { ForwardActivations } from './forward-pass.js';
import type { OperationList } from './operation-list.js';
import type { OperationId, Source } from './step-plan.js';

export class PassedActivations implements ForwardActivations {
  readonly #ops: OperationList;
  /** The operation that made a micro-batch's input of the next block. */
  readonly #made = new Map<number, OperationId>();

  constructor(ops: OperationList) {
    this.#ops = ops;
  }

  activation(
    block: number,
    microBatch: number,
  ): { source: Source; after: OperationId[]; claims: object[] } {
    const operation = this.#made.get(microBatch);
    assert(operation !== undefined, 'the activation exists', { block, microBatch });
    return { source: { kind: 'output', operation }, after: [], claims: [] };
  }

  put(_block: number, microBatch: number, operation: OperationId): void {
    this.#made.set(microBatch, operation);
  }

  used(block: number, microBatch: number, user: OperationId): void {
    const { source } = this.activation(block, microBatch);
    assert(source.kind === 'output', 'it is on the device');
    this.#ops.drop({ operation: source.operation, part: 'activation' }, user);
    this.#made.delete(microBatch);
  }
}

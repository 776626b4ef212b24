/**
 * @file What operations would have left on a device that an equal operation stands in for: bytes that
 * are counted, and shapes from which tensors are made where an operation that runs needs them.
 */
import { assert } from '../../core/errors.js';
import type { OperationId, Output } from '../plan/step-plan.js';
import { tensorBytes } from '../plan/tensor-bytes.js';
import type { LeftShapes } from './compute-outputs.js';

type Part = Output['part'];

/** Shapes of tensors. */
type Shapes = readonly (readonly number[])[];

interface Counted {
  /** Bytes of the parts that are still there. */
  readonly bytes: Map<Part, number>;
  /** Called at most once. */
  readonly shapesOf: () => LeftShapes;
}

export class CountedOutputs {
  readonly #left = new Map<OperationId, Counted>();
  #bytes = 0;

  /** Bytes of everything that is left. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Counts what `id` leaves.
   *
   * @param parts bytes by part; a part without bytes is none
   * @param shapesOf the shapes, under the names of the block that `id` would have run
   */
  leave(id: OperationId, parts: ReadonlyMap<Part, number>, shapesOf: () => LeftShapes): void {
    if (parts.size === 0) return;
    const bytes = new Map(parts);
    for (const count of bytes.values()) this.#bytes += count;
    this.#left.set(id, { bytes, shapesOf });
  }

  has(operation: OperationId): boolean {
    return this.#left.has(operation);
  }

  free({ operation, part }: Output): void {
    const { bytes } = this.#of(operation);
    const count = bytes.get(part);
    assert(count !== undefined, 'the output is there', { operation, part });
    this.#bytes -= count;
    bytes.delete(part);
    if (bytes.size === 0) this.#left.delete(operation);
  }

  /** Shapes of the parts that are still there, which are counted no longer. */
  take(operation: OperationId): LeftShapes {
    const { bytes, shapesOf } = this.#of(operation);
    for (const count of bytes.values()) this.#bytes -= count;
    this.#left.delete(operation);
    const { activation, gradients, losses } = shapesOf();
    return {
      activation: bytes.has('activation') ? activation : undefined,
      gradients: bytes.has('gradients') ? gradients : {},
      losses: bytes.has('losses') ? losses : undefined,
    };
  }

  #of(operation: OperationId): Counted {
    const counted = this.#left.get(operation);
    assert(counted !== undefined, 'the operation left something', { operation });
    return counted;
  }
}

/** Bytes that tensors of these shapes are charged, each on its own. */
export function bytesOf(shapes: Shapes): number {
  const lengths = shapes.map((shape) => shape.reduce((product, size) => product * size, 1));
  return lengths.reduce((sum, length) => sum + tensorBytes(length), 0);
}

/** The same by part, of those that are there. */
export function bytesByPart({ activation, gradients, losses }: LeftShapes): Map<Part, number> {
  const parts = new Map<Part, number>();
  const gradientShapes = Object.values(gradients);
  if (activation !== undefined) parts.set('activation', bytesOf([activation]));
  if (gradientShapes.length > 0) parts.set('gradients', bytesOf(gradientShapes));
  if (losses !== undefined) parts.set('losses', bytesOf([losses]));
  return parts;
}

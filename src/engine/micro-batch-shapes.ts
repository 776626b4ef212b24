/**
 * @file Sizes of micro-batches, as plans need them: worked out once per set of shapes.
 */
import type { Block, MicroBatch } from '../model/block.js';
import type { MicroBatchShape } from '../plan/step-input.js';
import { Kept } from './kept.js';

/** Sets of shapes that are kept; a run pads its batches to few lengths. */
export const KEPT_SHAPES = 64;

/** What blocks make of a micro-batch, in elements. */
export interface OutputLengths {
  /** By block. */
  readonly outputs: readonly number[];
  readonly losses: number;
}

export class MicroBatchShapes {
  readonly #blocks: readonly Block[];
  readonly #lengthsOf: (batch: MicroBatch) => OutputLengths;
  readonly #shapes = new Kept<MicroBatchShape>(KEPT_SHAPES);

  constructor(blocks: readonly Block[], lengthsOf: (batch: MicroBatch) => OutputLengths) {
    this.#blocks = blocks;
    this.#lengthsOf = lengthsOf;
  }

  of(batch: MicroBatch): MicroBatchShape {
    return this.#shapes.get(shapeKey(batch), () => {
      const { outputs, losses } = this.#lengthsOf(batch);
      const [first] = this.#blocks;
      return {
        activationLengths: this.#blocks.map((_, index) => outputs[index - 1] ?? 0),
        gatherRows:
          first?.kind === 'row'
            ? first.gathers.map((gather) => gather.indices(batch.fields).length)
            : [],
        lossLength: losses,
        fieldBytes: Object.fromEntries(
          Object.entries(batch.fields).map(([name, { data }]) => [name, data.byteLength]),
        ),
      };
    });
  }
}

/** Micro-batches with equal keys have fields of equal shapes. */
export function shapeKey({ fields }: MicroBatch): string {
  return Object.entries(fields)
    .map(([name, { shape }]) => `${name}[${shape.join()}]`)
    .sort()
    .join();
}

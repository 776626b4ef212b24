/**
 * @file The loss: a double, summed over micro-batches and loss terms in ascending order.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../core/errors.js';
import type { TierManager, Turns } from '../../tiers/tier-manager.js';

export class LossSum {
  readonly #block: string;
  #value = 0;

  /** @param block name of the block that gives losses, for the error */
  constructor(block: string) {
    this.#block = block;
  }

  get value(): number {
    return this.#value;
  }

  /** Adds the terms of one micro-batch. @throws NON_FINITE naming the block */
  async add(tiers: TierManager, losses: Tensor, turns?: Turns): Promise<void> {
    const terms = new Float32Array(losses.size);
    await tiers.download(losses, 0, terms, turns);
    for (const term of terms) this.#value += term;
    if (!Number.isFinite(this.#value)) {
      throw new SpillwayError('NON_FINITE', `the loss of block ${this.#block} is not finite`, {
        block: this.#block,
      });
    }
  }
}

/**
 * @file Slots of the device's region for what is fetched beside parameters: gathered rows,
 * activations, a sequence's cache. They are taken in turn.
 */
import { assert } from '../../core/errors.js';
import type { OperationList } from './operation-list.js';
import type { OperationId, RegionPlan } from './step-plan.js';

export class ActivationSlots {
  readonly #region: RegionPlan;
  readonly #ops: OperationList;
  #turn = 0;

  constructor(region: RegionPlan, ops: OperationList) {
    this.#region = region;
    this.#ops = ops;
  }

  /** The next slot, and what must be over before it is filled. */
  claim(): { offset: number; claim: object; after: OperationId[] } {
    const { activationSlots, activationSlotBytes, activationOffset } = this.#region;
    assert(activationSlots > 0, 'what is fetched has a slot');
    const start = activationOffset + (this.#turn % activationSlots) * activationSlotBytes;
    this.#turn += 1;
    const area = { start, end: start + activationSlotBytes };
    const { after, claim } = this.#ops.region.claim(area, () => undefined);
    return { offset: start, claim, after };
  }
}

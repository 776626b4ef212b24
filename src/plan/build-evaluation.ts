/**
 * @file Writes down an evaluation of some micro-batches as operations: a forward pass to the losses,
 * in which activations pass from block to block on the device and nothing is kept.
 *
 * Parameters are fetched ahead into the slots of the region, as in a step. Vertical order fetches
 * each block once, and keeps an activation of each micro-batch; horizontal order runs one pass per
 * micro-batch, the next one's first fetches beside the end of this one.
 *
 * Pure functions.
 */
import { assert } from '../../core/errors.js';
import { ActivationSlots } from './activation-slots.js';
import { ForwardPass } from './forward-pass.js';
import { OperationList } from './operation-list.js';
import { ParameterSlots } from './parameter-slots.js';
import { PassedActivations } from './passed-activations.js';
import type { PassInput } from './step-input.js';
import type { StepPlan } from './step-plan.js';
import { StepSizes } from './step-sizes.js';

/** The operations of an evaluation, but for what `withSparseRows` adds. */
export function buildEvaluation(input: PassInput): StepPlan {
  const ops = new OperationList(input);
  const sizes = new StepSizes(input);
  const parameters = new ParameterSlots(input, ops, sizes, 'forward');
  const slots = new ActivationSlots(input.region, ops);
  const activations = new PassedActivations(ops);
  const parts = { ops, sizes, parameters, slots, activations, isSparse: true };
  const pass = new ForwardPass(input, parts);
  const { blocks, microBatches, plan } = input;
  const last = blocks.length - 1;
  const head = blocks[last]!;
  assert(head.kind !== 'row', 'the last block gives losses');
  const all = microBatches.map((_, index) => index);
  for (const some of plan.order === 'vertical' ? [all] : all.map((one) => [one])) {
    pass.blocks(some);
    if (head.kind === 'tiled') pass.head(head, some, true);
    else for (const one of some) pass.loss(one, pass.dense(last, one));
  }
  return { operations: ops.operations, paramLoadCount: parameters.loadCount };
}

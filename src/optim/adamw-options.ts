/**
 * @file AdamW's options in the words of torch, and the scalars of one step for the kernel.
 *
 * Decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101). Scalars stay in double here;
 * the kernel rounds them to float32 in torch's order.
 */
import type { AdamwScalars } from '../../tiers/native/native-binding.js';

/** Options of the whole run. */
export interface AdamwOptions {
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
  /** Decay of groups with `decay: true`. */
  readonly weightDecay: number;
}

/** torch.optim.AdamW's defaults, except weight decay, which is Hugging Face's 0. */
export const ADAMW_DEFAULTS: AdamwOptions = {
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0,
};

/** What distinguishes one parameter group from another. */
export interface AdamwGroup {
  /** Whether weight decay applies: false on norms and biases. */
  readonly decay: boolean;
  /** Factor on the learning rate. Default 1. */
  readonly learningRateFactor?: number;
}

/**
 * Scalars of one update of one group.
 *
 * @param step optimizer step, one-based
 * @param learningRate of this step, after the schedule and before the group's factor
 * @param gradScale factor on the gradient: the clip coefficient, or 1
 */
export function adamwScalars(
  options: AdamwOptions,
  group: AdamwGroup,
  step: number,
  learningRate: number,
  gradScale = 1,
): AdamwScalars {
  return {
    learningRate: learningRate * (group.learningRateFactor ?? 1),
    beta1: options.beta1,
    beta2: options.beta2,
    epsilon: options.epsilon,
    weightDecay: group.decay ? options.weightDecay : 0,
    step,
    gradScale,
  };
}

/**
 * @file Options of `InferenceEngine.create`.
 */
import type { MicroBatch, Model } from '../model/block.js';
import type { ExecutionOptions, ResourceOptions } from './engine-options.js';

/** At least one of `exampleBatch` and `maxLength` is given; memory is planned for no more. */
export interface InferenceOptions extends ResourceOptions {
  readonly model: Model;
  /** To evaluate: a micro-batch of the largest shapes that will be used; its values do not matter. */
  readonly exampleBatch?: MicroBatch;
  /** To generate: most tokens of a sequence, those given and those that follow together. */
  readonly maxLength?: number;
  /** How plans are carried out. */
  readonly execution?: ExecutionOptions;
}

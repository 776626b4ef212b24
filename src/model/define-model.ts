/**
 * @file A model of a user's own blocks, with first values from their `init` or from arrays.
 */
import { SpillwayError } from '../../core/errors.js';
import type { Block, Model, ParamName, ParamSpec, TensorSource } from './block.js';
import { checkChain } from './check-chain.js';
import { seededSource } from './seeded-source.js';

/** What `defineModel` takes. */
export interface ModelDescription {
  /** For messages and the run's identity. */
  readonly name: string;
  /** In order; the last one returns losses. */
  readonly blocks: readonly Block[];
  /** First values by parameter, row-major; the others come from `init`. Read, never written. */
  readonly weights?: Readonly<Record<ParamName, Float32Array>>;
  /** Of the random first values. Default 42. */
  readonly seed?: number;
}

/**
 * The model of `description`.
 *
 * @throws BLOCK_INVALID when the blocks are no valid chain; CHECKPOINT_MISMATCH when `weights`
 *   names an unknown parameter or has a wrong length
 */
export function defineModel(description: ModelDescription): Model {
  const { name, blocks, weights = {}, seed = 42 } = description;
  checkChain(blocks);
  const specs = new Map(blocks.flatMap((block) => block.owns.map((spec) => [spec.name, spec])));
  for (const [param, values] of Object.entries(weights)) checkWeights(param, values, specs);
  return {
    name,
    blocks,
    source: (spec) => {
      const values = Object.hasOwn(weights, spec.name) ? weights[spec.name] : undefined;
      return values === undefined ? seededSource(spec, seed) : arraySource(spec, values);
    },
    close: async () => undefined,
  };
}

function checkWeights(
  param: ParamName,
  values: Float32Array,
  specs: ReadonlyMap<ParamName, ParamSpec>,
): void {
  const spec = specs.get(param);
  const expected = spec?.shape.reduce((product, size) => product * size, 1);
  if (values.length === expected) return;
  throw new SpillwayError(
    'CHECKPOINT_MISMATCH',
    spec === undefined
      ? `weights has ${param}, which no block owns; remove it or own it`
      : `weights of ${param} have a wrong length; give the elements of its shape`,
    { param, length: values.length, ...(spec && { shape: `[${spec.shape.join(', ')}]` }) },
  );
}

function arraySource({ name, shape }: ParamSpec, values: Float32Array): TensorSource {
  return {
    name,
    shape,
    read: async (offset, target) => {
      target.set(values.subarray(offset, offset + target.length));
    },
  };
}

/**
 * @file First values of a parameter from its `init`: zeros, ones, or seeded normal numbers.
 *
 * An element depends on (seed, parameter name, element index) only, so reading in any pieces, in any
 * order, gives the same values. Elements 2i and 2i+1 are the pair that the Box-Muller transform
 * makes of Threefry's two words for counter i, under a key hashed from seed and name.
 */
import { createHash } from 'node:crypto';
import { SpillwayError } from '../../core/errors.js';
import type { ParamSpec, TensorSource } from './block.js';
import { threefry2x32 } from './threefry.js';

/**
 * The source of `spec`'s first values.
 *
 * Its `read` throws INTERNAL for elements outside the tensor.
 *
 * @param seed any integer
 */
export function seededSource(spec: ParamSpec, seed: number): TensorSource {
  const { name, shape, init } = spec;
  const length = shape.reduce((product, size) => product * size, 1);
  const key = keyOf(seed, name);
  return {
    name,
    shape,
    read: async (offset, target) => {
      if (offset < 0 || offset + target.length > length) {
        throw new SpillwayError('INTERNAL', 'a read lies outside the tensor', {
          name,
          offset,
          count: target.length,
          length,
        });
      }
      switch (init.kind) {
        case 'zeros':
          target.fill(0);
          return;
        case 'ones':
          target.fill(1);
          return;
        case 'normal':
          fillNormal(key, offset, target, init.std);
          return;
        default:
          init satisfies never;
      }
    },
  };
}

function keyOf(seed: number, name: string): readonly [number, number] {
  const digest = createHash('sha256').update(`${seed}\0${name}`).digest();
  return [digest.readUInt32LE(0), digest.readUInt32LE(4)];
}

/** Elements `offset …` of the normal sequence under `key`, times `std`, rounded to float32. */
function fillNormal(
  key: readonly [number, number],
  offset: number,
  target: Float32Array,
  std: number,
): void {
  const words = new Uint32Array(2);
  const end = offset + target.length;
  for (let pair = Math.floor(offset / 2); pair * 2 < end; pair += 1) {
    threefry2x32(key, pair >>> 0, Math.floor(pair / 2 ** 32), words);
    // Centres of 2^32 equal cells of (0, 1): never 0, so the logarithm is finite.
    const radius = std * Math.sqrt(-2 * Math.log((words[0]! + 0.5) / 2 ** 32));
    const angle = 2 * Math.PI * ((words[1]! + 0.5) / 2 ** 32);
    const first = pair * 2 - offset;
    if (first >= 0) target[first] = radius * Math.cos(angle);
    if (first + 1 < target.length) target[first + 1] = radius * Math.sin(angle);
  }
}

/**
 * @file Identifies a model by the names, shapes and classes of its parameters, not their values.
 */
import { createHash } from 'node:crypto';
import type { Block } from './block.js';

/** SHA-256 in hex over the parameters in block order. */
export function modelFingerprint(blocks: readonly Block[]): string {
  const hash = createHash('sha256');
  for (const block of blocks) {
    for (const { name, shape, decay, trainable = true } of block.owns) {
      hash.update(`${JSON.stringify(name)}:${shape.join('x')}:${decay}:${trainable};`);
    }
  }
  return hash.digest('hex');
}

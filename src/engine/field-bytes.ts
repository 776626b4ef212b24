/**
 * @file What the batch fields of a micro-batch take on the device.
 */
import type { Block, MicroBatch } from '../model/block.js';
import { chargedBytes } from '../plan/tensor-bytes.js';

/** Bytes of the fields that blocks read, each in whole cache lines. */
export function fieldBytes(blocks: readonly Block[], { fields }: MicroBatch): number {
  const names = blocks.flatMap(({ reads = [], readsIfPresent = [] }) => [
    ...reads,
    ...readsIfPresent,
  ]);
  return [...new Set(names)].reduce(
    (sum, name) => sum + chargedBytes(fields[name]?.data.byteLength ?? 0),
    0,
  );
}

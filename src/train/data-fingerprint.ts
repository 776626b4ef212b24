/**
 * @file Identifies the content of a data set: what a resumed run must find again.
 */
import { createHash } from 'node:crypto';
import type { TokenDataset } from '../data/token-dataset.js';

/** SHA-256 in hex over tokens, labels and documents of all rows, in order. */
export function dataFingerprint(dataset: TokenDataset): string {
  const hash = createHash('sha256');
  for (let index = 0; index < dataset.length; index += 1) {
    const { inputIds, labels, documents } = dataset.row(index);
    hash.update(Uint32Array.of(inputIds.length));
    hash.update(inputIds);
    // Labels are often the same array; their length marks where others follow.
    if (labels !== inputIds && !sameNumbers(labels, inputIds)) hash.update('labels').update(labels);
    if (documents !== undefined) hash.update('documents').update(documents);
  }
  return hash.digest('hex');
}

function sameNumbers(a: Int32Array, b: Int32Array): boolean {
  return a.length === b.length && a.every((value, at) => value === b[at]);
}

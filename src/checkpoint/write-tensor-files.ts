/**
 * @file Writes tensors as one safetensors file, or as shards of bounded size with an index.
 *
 * The index is transformers': `metadata.total_size` (bytes of data), for weights also
 * `metadata.total_parameters`, and `weight_map` from tensor to file. It is written last, so that
 * what it lists is there.
 */
import { join } from 'node:path';

import { assert } from '../../core/errors.js';
import { writeDurableJson } from './durable-file.js';
import { dtypeBits, elementCount } from './safetensors-header.js';
import { writeSafetensors, type TensorToWrite } from './safetensors-writer.js';
import { splitShards } from './split-shards.js';
import {
  indexFileName,
  shardFileName,
  singleFileName,
  type TensorStem,
} from './tensor-file-names.js';

/**
 * Writes `tensors` into `folder`, whose files of this stem the caller has cleared.
 *
 * @param maxShardBytes bytes of data per file; a larger tensor gets a file of its own
 * @throws as `writeSafetensors`
 */
export async function writeTensorFiles(
  folder: string,
  stem: TensorStem,
  tensors: readonly TensorToWrite[],
  maxShardBytes: number,
): Promise<void> {
  const sized = tensors.map((tensor) => ({ name: tensor.name, bytes: tensorBytes(tensor) }));
  const shards = splitShards(sized, maxShardBytes);
  if (shards.length <= 1) {
    await writeSafetensors(join(folder, singleFileName(stem)), tensors);
    return;
  }
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  assert(byName.size === tensors.length, 'tensor names are unique', { stem });
  const weightMap: [string, string][] = [];
  for (const [index, names] of shards.entries()) {
    const fileName = shardFileName(stem, index, shards.length);
    await writeSafetensors(
      join(folder, fileName),
      names.map((name) => byName.get(name)!),
    );
    for (const name of names) weightMap.push([name, fileName]);
  }
  const parameters = tensors.reduce((sum, { shape }) => sum + elementCount(shape), 0);
  await writeDurableJson(join(folder, indexFileName(stem)), {
    metadata: {
      ...(stem === 'model' ? { total_parameters: parameters } : {}),
      total_size: sized.reduce((sum, { bytes }) => sum + bytes, 0),
    },
    weight_map: Object.fromEntries(weightMap.sort(([a], [b]) => (a < b ? -1 : 1))),
  });
}

function tensorBytes(tensor: TensorToWrite): number {
  return (elementCount(tensor.shape) * dtypeBits(tensor.dtype)) / 8;
}

/**
 * @file Which tensor goes into which file when a save is split by `max_shard_size`.
 *
 * The rule is that of huggingface_hub 2.4.0 (`split_state_dict_into_shards_factory`), so that a
 * model that transformers and Spillway save has the same files: tensors in the order given fill a
 * shard until the next would exceed the limit; a tensor above the limit is a shard of its own,
 * numbered where it comes, while the shard before it goes on.
 */
import { assert } from '../../core/errors.js';

/** What a shard's size is counted from. */
export interface SizedTensor {
  readonly name: string;
  /** Bytes of its data; headers do not count. */
  readonly bytes: number;
}

/** Names of the tensors of each shard, in order. One shard when everything fits, none for nothing. */
export function splitShards(
  tensors: readonly SizedTensor[],
  maxShardBytes: number,
): (readonly string[])[] {
  assert(maxShardBytes > 0, 'a shard holds at least one byte', { maxShardBytes });
  const shards: string[][] = [];
  let current: string[] = [];
  let currentBytes = 0;
  for (const { name, bytes } of tensors) {
    if (bytes > maxShardBytes) {
      shards.push([name]);
      continue;
    }
    if (currentBytes + bytes > maxShardBytes) {
      shards.push(current);
      current = [];
      currentBytes = 0;
    }
    current.push(name);
    currentBytes += bytes;
  }
  if (current.length > 0) shards.push(current);
  return shards;
}

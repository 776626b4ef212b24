/**
 * @file Configuration keys of devices, budgets and where states live.
 */
import { availableParallelism } from 'node:os';
import type { ConfigKey } from '../config-key.js';
import {
  booleanKey,
  bytesKey,
  choiceKey,
  listKey,
  optional,
  rateKey,
  wholeKey,
} from '../config-key.js';

const OFFLOAD_DEVICES = ['none', 'cpu', 'nvme', 'auto'] as const;

/** What a link carries at most. */
function throttleKey(link: string) {
  return optional(
    rateKey({
      meaning: `Bytes per second of training steps at most, ${link}: makes a slower machine of this one. Changes no bit of the result.`,
      source: 'Spillway',
      fallbackText: 'not throttled',
    }),
  );
}

export const MEMORY_KEYS = {
  device: choiceKey(['auto', 'native', 'cpu', 'webgpu', 'tensorflow'], 'auto', {
    meaning:
      'Device that computes; one that is not there is refused as DEVICE_UNAVAILABLE. auto: native where the addon loads, else cpu.',
    source: 'Spillway',
  }),
  device_memory: bytesKey({
    meaning: 'Hard budget of device memory.',
    source: 'Spillway',
    fallbackText: 'a quarter of available memory',
  }),
  host_memory: bytesKey({
    meaning: 'Hard budget of host memory that the engine owns.',
    source: 'Spillway',
    fallbackText: 'half of available memory',
  }),
  nvme_path: listKey('a folder, or several', {
    meaning:
      'Folders of the NVMe tier; data is spread over them. Without one there is no NVMe tier.',
    source: 'DeepSpeed',
    fallbackText: 'none',
  }),
  nvme_memory: bytesKey({
    meaning: 'Hard budget of space in `nvme_path`, all folders together.',
    source: 'Spillway',
    fallbackText: '90 % of free space',
  }),
  'offload_param.device': choiceKey(OFFLOAD_DEVICES, 'auto', {
    meaning: 'Lowest tier of parameters: none (device), cpu (host), nvme; auto: what fits.',
    source: 'DeepSpeed',
  }),
  'offload_optimizer.device': choiceKey(OFFLOAD_DEVICES, 'auto', {
    meaning: 'Lowest tier of optimizer states: none (device), cpu (host), nvme; auto: what fits.',
    source: 'DeepSpeed',
  }),
  sub_group_size: wholeKey(
    'a whole multiple of 4096, at least 4096',
    (value) => value >= 4096 && value % 4096 === 0,
    16_777_216,
    {
      meaning: 'Most elements of a shard, the unit of storage and of optimizer work.',
      source: 'DeepSpeed',
    },
  ),
  micro_batch_order: choiceKey(['auto', 'vertical', 'horizontal'], 'auto', {
    meaning:
      'vertical: all micro-batches of a block, then the next block (fewest loads); horizontal: all blocks, then the next micro-batch. Changes no bit of the result.',
    source: 'Spillway',
  }),
  optimizer_workers: wholeKey(
    'a whole number from 1 to 256',
    (value) => value >= 1 && value <= 256,
    Math.min(2, availableParallelism()),
    {
      meaning: 'Threads of the AdamW pool. Changes no bit of the result.',
      source: 'Spillway',
      fallbackText: 'the number of cores, at most 2',
    },
  ),
  'throttle.nvme_read': throttleKey('reads from NVMe'),
  'throttle.nvme_write': throttleKey('writes to NVMe'),
  'throttle.upload': throttleKey('host memory to the device'),
  'throttle.download': throttleKey('the device to host memory'),
  gradient_checkpointing: booleanKey(true, {
    meaning: 'Always on: blocks are computed again in the reverse pass. false is refused.',
    source: 'Hugging Face',
  }),
} satisfies Record<string, ConfigKey<unknown>>;

/**
 * @file Measures copies between host memory and the device: pieces one after the other, as a
 * transfer of a step moves them. Two sizes tell the time per byte from the time per piece.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Device } from '../../../tiers/device/device.js';
import type { MemoryArena } from '../../../tiers/host/host-buffer.js';
import type { LinkCost } from '../../plan/costs.js';
import { PIECE_BYTES } from '../../plan/simulated-link.js';
import type { CopyCosts } from './cost-store.js';
import { median } from './median.js';

/** Bytes that are copied over and over: more than a processor's cache. */
const AREA_BYTES = 64 * PIECE_BYTES;

const SMALL_BYTES = 2 ** 16;

/** Rounds of each size; the median counts. */
const ROUNDS = 9;

/** Copies per round. */
const COPIES = 32;

/**
 * Seconds per byte and per piece of uploads and downloads. Takes 128 MiB of the host arena and 64 MiB
 * of the device.
 *
 * @throws DEVICE_OUT_OF_MEMORY, HOST_OUT_OF_MEMORY
 */
export async function measureCopies(device: Device, arena: MemoryArena): Promise<CopyCosts> {
  const lease = arena.lease(AREA_BYTES, 'copies');
  const region = device.reserve(AREA_BYTES, 'copies');
  try {
    lease.bytes.fill(1);
    const upload = await linkCost((offset, bytes) =>
      region.write(offset, lease.bytes.subarray(offset, offset + bytes), 'float32', 'float32'),
    );
    const tensor = device.run(() => tf.fill([AREA_BYTES / 4], 1));
    try {
      const download = await linkCost((offset, bytes) => {
        const { buffer, byteOffset } = lease.bytes;
        const target = new Float32Array(buffer, byteOffset + offset, bytes / 4);
        return device.download(tensor, offset / 4, target);
      });
      return { upload, download };
    } finally {
      tensor.dispose();
    }
  } finally {
    region.dispose();
    lease.dispose();
  }
}

async function linkCost(copy: (offset: number, bytes: number) => Promise<void>): Promise<LinkCost> {
  const secondsOf = async (bytes: number): Promise<number> => {
    const rounds: number[] = [];
    let offset = 0;
    for (let round = 0; round <= ROUNDS; round += 1) {
      const start = performance.now();
      for (let index = 0; index < COPIES; index += 1) {
        await copy(offset, bytes);
        offset = (offset + PIECE_BYTES) % AREA_BYTES;
      }
      // The first touches the memory.
      if (round > 0) rounds.push((performance.now() - start) / 1000 / COPIES);
    }
    return median(rounds);
  };
  const large = await secondsOf(PIECE_BYTES);
  const small = await secondsOf(SMALL_BYTES);
  const perByte = Math.max((large - small) / (PIECE_BYTES - SMALL_BYTES), large / PIECE_BYTES / 4);
  return {
    bytesPerSecond: 1 / perByte,
    secondsPerPiece: Math.max(0, large - perByte * PIECE_BYTES),
  };
}

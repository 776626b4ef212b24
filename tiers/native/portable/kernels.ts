/**
 * @file The numeric kernels in TypeScript: what runs where the addon does not.
 */
import type { Kernels } from '../native-binding.js';
import { accumulate } from './accumulate.js';
import { adamw, adamwSplit } from './adamw.js';
import { bf16ToF32, f16ToF32, f32ToBf16, f32ToF16 } from './casts.js';
import { crc32c } from './crc32c.js';
import { squaredNormLeaves } from './grad-norm.js';
import { joinMaster, splitMaster } from './split-master.js';

/** All kernels, bit for bit what the addon computes. */
export const portableKernels: Kernels = {
  adamw,
  adamwSplit,
  splitMaster,
  joinMaster,
  bf16ToF32,
  f32ToBf16,
  f16ToF32,
  f32ToF16,
  accumulate,
  squaredNormLeaves,
  crc32c,
};

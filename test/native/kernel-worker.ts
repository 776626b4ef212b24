/**
 * @file A worker thread that loads the kernels and reports what it got; used by binding.test.ts.
 */
import { parentPort } from 'node:worker_threads';

import { isa, kernels } from '../../tiers/native/binding.js';

parentPort?.postMessage([isa(), kernels().crc32c(new Uint8Array(32))]);

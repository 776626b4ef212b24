/** @file Helpers of the NVMe tests: aligned buffers, patterns, temporary folders, errors. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker, type WorkerOptions } from 'node:worker_threads';
import { onTestFinished } from 'vitest';

import { createSlab } from '../../tiers/host/slab.js';
import type { SpillwayError } from '../../core/errors.js';

export const PAGE = 4096;

/** Page-aligned shared memory, zeroed. */
export function buffer(byteLength: number): Uint8Array<SharedArrayBuffer> {
  return createSlab(byteLength, { hugePages: false }).bytes;
}

/** Page-aligned bytes that differ from one `seed` to another and from page to page. */
export function pattern(byteLength: number, seed: number): Uint8Array<SharedArrayBuffer> {
  const bytes = buffer(byteLength);
  let state = (seed * 2654435761 + 1) >>> 0;
  for (let index = 0; index < byteLength; index += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[index] = state >>> 24;
  }
  return bytes;
}

/** An empty folder that is removed after the test. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'spillway-nvme-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The error that `action` rejects with or throws; fails when there is none. */
export async function failure(action: () => unknown): Promise<SpillwayError> {
  try {
    await action();
  } catch (error) {
    return error as SpillwayError;
  }
  throw new Error('no error where one was expected');
}

/** Open descriptors of this process, or undefined where the system does not tell. */
export function openDescriptors(): number | undefined {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return undefined;
  }
}

/** Whether two byte ranges are equal; on 1 MiB much faster than a deep comparison. */
export function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  return Buffer.compare(left, right) === 0;
}

/** A worker thread that runs a TypeScript module; as its entry Node 20 would refuse one. */
export function startWorker(module: URL, options: WorkerOptions): Worker {
  const code = `import('tsx/esm/api').then(({ register }) => {
    register();
    return import(${JSON.stringify(module.href)});
  });`;
  return new Worker(code, { ...options, eval: true, execArgv: [] });
}

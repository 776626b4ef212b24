/**
 * @file The only file that loads the C++ addon; mirrors its exports as a typed interface.
 *
 * The addon is `build/spillway.node` under the package root, made by scripts/build-native.mjs. It
 * is loaded once per thread, on first use. `SPILLWAY_NATIVE=off` keeps it out; `SPILLWAY_ADDON`
 * names another file to load instead (an instrumented build); `SPILLWAY_ISA` (`avx512`, `avx2`,
 * `neon`, `portable`) forces the kernels' instruction set. Nothing here falls back in silence:
 * `nativeStatus()` says what runs and why, and the doctor prints it.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { SpillwayError } from '../../core/errors.js';
import type { Isa, Kernels } from './native-binding.js';
import type { AdamwFactors } from './portable/adamw-factors.js';
import { adamwFactors } from './portable/adamw-factors.js';
import { portableKernels } from './portable/kernels.js';

/** Same number as `kAbiVersion` in native/addon.cc. */
export const ABI_VERSION = 2;

/** What the addon exports; kernels as in `Kernels`, AdamW with its scalars already rounded. */
export interface NativeAddon extends Omit<Kernels, 'adamw' | 'adamwSplit'> {
  readonly abiVersion: number;
  /** Instruction set of the numeric kernels, process-wide. */
  isa(): Isa;
  /** Forces the instruction set (tests, benchmarks). @throws RangeError when the CPU lacks it */
  setIsa(isa: Isa): void;
  /** Instruction sets of this CPU, best first; `portable` is always last. */
  isaList(): Isa[];

  adamw(
    param: Float32Array,
    grad: Float32Array,
    expAvg: Float32Array,
    expAvgSq: Float32Array,
    factors: AdamwFactors,
  ): void;
  adamwSplit(
    param: Uint16Array,
    masterLo: Uint16Array,
    grad: Float32Array,
    expAvg: Float32Array,
    expAvgSq: Float32Array,
    factors: AdamwFactors,
  ): void;

  /** `out = fmaf(a, b, c)` per element; the reference of the TypeScript twin's tests. */
  fusedMultiplyAdd(a: Float32Array, b: Float32Array, c: Float32Array, out: Float32Array): void;
  /** AdamW's memory traffic without its arithmetic; the ceiling of its benchmark. */
  adamwTraffic(
    param: Float32Array,
    grad: Float32Array,
    expAvg: Float32Array,
    expAvgSq: Float32Array,
  ): void;

  /** 0, or the errno with which the kernel refuses an io_uring. */
  ringProbe(): number;
  /**
   * A ring on this thread's event loop. `onComplete(count)` finds `count` pairs (slot, result) in
   * `completions`; a result is bytes or a negative errno. `onComplete` must not throw.
   */
  asyncRingCreate(
    depth: number,
    completions: Int32Array,
    onComplete: (count: number) => void,
  ): AsyncRingHandle;
  /** Queues a request in a free slot below `depth`; no system call. The view is held. */
  asyncRingPush(handle: AsyncRingHandle, ...request: RingRequest): void;
  /** 0, or the number of newest requests not taken; then `completions[0]` is the negative errno. */
  asyncRingSubmit(handle: AsyncRingHandle): number;
  /** Waits for what is in flight, forgets its results. Idempotent. */
  asyncRingClose(handle: AsyncRingHandle): void;

  /** A ring that blocks the calling thread; belongs to that thread. */
  syncRingCreate(depth: number, completions: Int32Array): SyncRingHandle;
  syncRingPush(handle: SyncRingHandle, ...request: RingRequest): void;
  /** Submits and blocks for `minComplete` completions; returns pairs written, or a negative errno. */
  syncRingWait(handle: SyncRingHandle, minComplete: number): number;
  syncRingClose(handle: SyncRingHandle): void;

  /** Address of the view's first byte. */
  slabAddress(view: Uint8Array): number;
  /** Asks for huge pages (0) or gives the pages back (1); returns 0 or an errno. */
  slabAdvise(view: Uint8Array, advice: 0 | 1): number;

  /** Exclusive flock without waiting; returns 0 or an errno (EAGAIN: another holder). */
  fileLock(fd: number): number;
  /** Allocates space up to `byteLength`; returns 0 or an errno (EOPNOTSUPP: not on this disk). */
  fileReserve(fd: number, byteLength: number): number;

  /** Number of a kernel of the native device. @throws RangeError when there is none of that name */
  kernelId(name: string): number;
  /** Names of all kernels, by id. */
  kernelNames(): string[];
  /**
   * Runs a kernel on `threads` threads before it returns (tests, benchmarks). Offsets in `args`
   * count from the first byte of `base`. Serialised within the process.
   */
  runKernelNow(id: number, base: Uint8Array, args: Float64Array, threads: number): void;

  /**
   * The native device's arena and queues (native/device-runtime.cc). Queues are numbered compute 0,
   * upload 1, download 2; commands of each are numbered from 1. Launches read their arguments from
   * `args`. `onSignal()` follows a watched completion. @throws RangeError when the arena is refused
   */
  runtimeCreate(
    arenaBytes: number,
    args: Float64Array,
    threads: number,
    onSignal: () => void,
  ): RuntimeHandle;
  /** Address of the arena's first byte, a multiple of 2 MiB. */
  runtimeBase(handle: RuntimeHandle): number;
  /** A kernel on the compute queue; its offsets are addresses. Blocks while the queue is full. */
  runtimeLaunch(handle: RuntimeHandle, kernelId: number, argCount: number): void;
  /** `queue` goes on once `other` has completed `sequence` commands. */
  runtimeWait(handle: RuntimeHandle, queue: number, other: number, sequence: number): void;
  /** Copies `bytes` before it returns, and the copy to the address `target` on the compute queue. */
  runtimeWrite(handle: RuntimeHandle, target: number, bytes: Uint8Array): void;
  /** Copies (0) or widens bfloat16 (1) or float16 (2), on the upload queue. `source` stays alive. */
  runtimeUpload(handle: RuntimeHandle, target: number, source: Uint8Array, type: 0 | 1 | 2): void;
  /** Copies from the address `source`, on the download queue. `target` stays alive. */
  runtimeDownload(handle: RuntimeHandle, source: number, target: Uint8Array): void;
  /** Gives whole pages of the arena back to the system, on the compute queue. */
  runtimeDiscard(handle: RuntimeHandle, target: number, byteLength: number): void;
  /** Number of commands that `queue` has completed. */
  runtimeCompleted(handle: RuntimeHandle, queue: number): number;
  /**
   * Asks for one `onSignal()` once `queue` has completed `sequence` commands, instead of what was
   * asked before. Returns the number completed; the signal may not come when that is enough.
   */
  runtimeWatch(handle: RuntimeHandle, queue: number, sequence: number): number;
  /** Sleeps until `queue` has completed `sequence` commands. */
  runtimeBlock(handle: RuntimeHandle, queue: number, sequence: number): void;
  /** Copies from the address `source`, at once. */
  runtimeRead(handle: RuntimeHandle, source: number, target: Uint8Array): void;
  /** Whether the process waits for an `onSignal()`. */
  runtimeKeepAlive(handle: RuntimeHandle, keep: boolean): void;
  /** Joins the threads, frees the arena; what has not begun is forgotten. Idempotent. */
  runtimeClose(handle: RuntimeHandle): void;
}

/** Opaque. */
export interface RuntimeHandle {
  readonly runtime: unique symbol;
}

/** Opaque. */
export interface AsyncRingHandle {
  readonly asyncRing: unique symbol;
}

/** Opaque. */
export interface SyncRingHandle {
  readonly syncRing: unique symbol;
}

/** Arguments of a push; `op` is 0 to read, 1 to write, 2 for fdatasync (view ignored). */
export type RingRequest = [
  slot: number,
  op: 0 | 1 | 2,
  fd: number,
  offset: number,
  view: Uint8Array,
];

/** Whether the addon is in use; otherwise why not. */
export type NativeStatus =
  | { readonly kind: 'loaded'; readonly path: string; readonly isa: Isa }
  | { readonly kind: 'off' | 'not-built' | 'unloadable'; readonly reason: string };

interface Loaded {
  readonly addon: NativeAddon | undefined;
  readonly status: NativeStatus;
}

let loaded: Loaded | undefined;
let chosen: Kernels | undefined;

/**
 * The addon, or undefined when it is off, not built or not loadable (`nativeStatus()` says which).
 *
 * @throws NATIVE_ABI_MISMATCH when it was built from other sources than this file
 * @throws CONFIG_INVALID when SPILLWAY_NATIVE or SPILLWAY_ISA has no such value here, or when
 *   SPILLWAY_ADDON names a file that does not load
 */
export function native(): NativeAddon | undefined {
  loaded ??= load();
  return loaded.addon;
}

/** What runs and why. Throws as `native()` does. */
export function nativeStatus(): NativeStatus {
  const addon = native();
  const status = loaded!.status;
  return status.kind === 'loaded' && addon ? { ...status, isa: addon.isa() } : status;
}

/**
 * The numeric kernels that this process uses: the addon's, or their TypeScript twins.
 * Throws as `native()` does.
 */
export function kernels(): Kernels {
  const addon = native();
  if (addon === undefined) return portableKernels;
  chosen ??= nativeKernels(addon);
  return chosen;
}

/** Instruction set of `kernels()`; `javascript` without the addon. Throws as `native()` does. */
export function isa(): Isa | 'javascript' {
  return native()?.isa() ?? 'javascript';
}

function nativeKernels(addon: NativeAddon): Kernels {
  return {
    adamw: (param, grad, expAvg, expAvgSq, scalars) =>
      addon.adamw(param, grad, expAvg, expAvgSq, adamwFactors(scalars)),
    adamwSplit: (param, masterLo, grad, expAvg, expAvgSq, scalars) =>
      addon.adamwSplit(param, masterLo, grad, expAvg, expAvgSq, adamwFactors(scalars)),
    splitMaster: addon.splitMaster,
    joinMaster: addon.joinMaster,
    bf16ToF32: addon.bf16ToF32,
    f32ToBf16: addon.f32ToBf16,
    f16ToF32: addon.f16ToF32,
    f32ToF16: addon.f32ToF16,
    accumulate: addon.accumulate,
    squaredNormLeaves: addon.squaredNormLeaves,
    crc32c: addon.crc32c,
  };
}

/**
 * Path of the addon's file, whether or not it exists: `SPILLWAY_ADDON` (from the working directory,
 * unless absolute), else `build/spillway.node` of this package.
 */
export function nativePath(): string {
  if (isNamed()) return resolve(process.env['SPILLWAY_ADDON']!);
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!isPackageRoot(folder)) {
    const parent = dirname(folder);
    if (parent === folder) {
      throw new SpillwayError('INTERNAL', 'no package.json of spillway above the running file');
    }
    folder = parent;
  }
  return join(folder, 'build', 'spillway.node');
}

/** Whoever names an addon wants that one: then nothing stands in for it. */
function isNamed(): boolean {
  return (process.env['SPILLWAY_ADDON'] ?? '') !== '';
}

function isPackageRoot(folder: string): boolean {
  const path = join(folder, 'package.json');
  if (!existsSync(path)) return false;
  const manifest = JSON.parse(readFileSync(path, 'utf8')) as { name?: unknown };
  return manifest.name === 'spillway';
}

function load(): Loaded {
  const forced = process.env['SPILLWAY_ISA'];
  const result = loadAddon();
  if (forced !== undefined && forced !== '') forceIsa(result.addon, forced);
  return result;
}

function loadAddon(): Loaded {
  const choice = process.env['SPILLWAY_NATIVE'] ?? '';
  if (choice === 'off') {
    return { addon: undefined, status: { kind: 'off', reason: 'SPILLWAY_NATIVE is off' } };
  }
  if (choice !== '' && choice !== 'on') {
    throw new SpillwayError('CONFIG_INVALID', `SPILLWAY_NATIVE is "${choice}"; use on or off`);
  }
  const path = nativePath();
  if (!existsSync(path)) {
    if (isNamed()) {
      throw new SpillwayError('CONFIG_INVALID', `SPILLWAY_ADDON names no file: ${path}`);
    }
    const reason = `${path} does not exist; run "npm run build:native"`;
    return { addon: undefined, status: { kind: 'not-built', reason } };
  }
  let addon: NativeAddon;
  try {
    addon = createRequire(import.meta.url)(path) as NativeAddon;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    if (isNamed()) {
      throw new SpillwayError('CONFIG_INVALID', `SPILLWAY_ADDON does not load: ${reason}`, {
        path,
      });
    }
    return { addon: undefined, status: { kind: 'unloadable', reason } };
  }
  checkAbi(addon.abiVersion, path);
  return { addon, status: { kind: 'loaded', path, isa: addon.isa() } };
}

/**
 * Refuses an addon of another layout.
 *
 * @throws NATIVE_ABI_MISMATCH
 */
export function checkAbi(actual: number, path: string): void {
  if (actual === ABI_VERSION) return;
  throw new SpillwayError(
    'NATIVE_ABI_MISMATCH',
    'the native addon was built from other sources; run "npm run build:native"',
    { path, expected: ABI_VERSION, actual },
  );
}

function forceIsa(addon: NativeAddon | undefined, forced: string): void {
  const available: readonly string[] = addon ? addon.isaList() : ['portable'];
  if (!available.includes(forced)) {
    throw new SpillwayError(
      'CONFIG_INVALID',
      `SPILLWAY_ISA is "${forced}", which this CPU and build do not offer; use one of the available`,
      { available },
    );
  }
  addon?.setIsa(forced as Isa);
}

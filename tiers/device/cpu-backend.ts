/**
 * @file tfjs's cpu backend: the process-wide instance, with its storage replaced by one that
 * charges devices.
 *
 * tfjs keeps one backend per name, so every user of 'cpu' in the process shares it. Data stored
 * while a device is paying (`withPayer`) is charged to that device until it is deleted, by whomever;
 * all other data passes through uncounted. Relies on members of tfjs-backend-cpu 4.22.0 that are
 * private in its typings, and asserts them.
 */
import '@tensorflow/tfjs-backend-cpu';
import * as tf from '@tensorflow/tfjs-core';
import { assert, SpillwayError } from '../../core/errors.js';
import type { DataAccount, StoredValues } from './data-account.js';

/** Name under which tfjs registers the backend. */
export const CPU_BACKEND_NAME = 'cpu';

/** A tensor's entry; a complex tensor has no values of its own. */
export interface StoredData {
  readonly values?: StoredValues;
  readonly dtype: string;
  refCount: number;
}

/** tfjs's DataStorage. */
export interface DataStore {
  get(dataId: object): StoredData;
  set(dataId: object, data: StoredData): void;
  has(dataId: object): boolean;
  delete(dataId: object): boolean;
  numDataIds(): number;
}

/** The members of tfjs's MathBackendCPU that a device uses. */
export interface CpuBackend extends tf.KernelBackend {
  /** False once tfjs has printed its advice to install another backend. */
  firstUse: boolean;
  data: DataStore;
}

/** Wraps tfjs's storage; charges whoever pays at the moment. */
class CountingStore implements DataStore {
  readonly #inner: DataStore;
  readonly #payers = new WeakMap<object, DataAccount>();
  /** Data whose device was disposed: reading it must fail by name. */
  readonly #dead = new WeakSet<object>();
  payer: DataAccount | undefined;

  constructor(inner: DataStore) {
    this.#inner = inner;
  }

  get(dataId: object): StoredData {
    if (this.#dead.has(dataId)) {
      throw new SpillwayError('ENGINE_CLOSED', 'the tensor belongs to a device that was disposed');
    }
    return this.#inner.get(dataId);
  }

  set(dataId: object, data: StoredData): void {
    const { payer } = this;
    if (payer !== undefined) {
      if (data.values === undefined) {
        throw new SpillwayError(
          'BLOCK_INVALID',
          `tensors of type ${data.dtype} do not run on the cpu device; use real numbers`,
        );
      }
      payer.add(dataId, data.values, `a ${data.dtype} tensor`);
      this.#payers.set(dataId, payer);
    }
    this.#inner.set(dataId, data);
  }

  has(dataId: object): boolean {
    return this.#inner.has(dataId);
  }

  delete(dataId: object): boolean {
    this.#payers.get(dataId)?.remove(dataId);
    this.#payers.delete(dataId);
    return this.#inner.delete(dataId);
  }

  numDataIds(): number {
    return this.#inner.numDataIds();
  }

  bury(dataId: object): void {
    this.delete(dataId);
    this.#dead.add(dataId);
  }
}

let installed: { backend: CpuBackend; store: CountingStore } | undefined;

/**
 * tfjs's cpu backend with the charging storage in place, quiet about itself.
 *
 * @throws INTERNAL when tfjs-backend-cpu lacks a member that this file relies on
 */
export function cpuBackend(): CpuBackend {
  return installation().backend;
}

/** Runs `body` with `account` charged for everything that the backend stores meanwhile. */
export function withPayer<T>(account: DataAccount, body: () => T): T {
  const { store } = installation();
  const outer = store.payer;
  store.payer = account;
  try {
    return body();
  } finally {
    store.payer = outer;
  }
}

/**
 * Frees data that no tensor refers to: what a kernel had allocated for itself when it failed.
 * Call it only when no kernel is running.
 */
export function freeOrphans(account: DataAccount): void {
  const { store } = installation();
  const tensorInfo = tensorInfoOf(tf.engine());
  for (const dataId of account.dataIds) if (tensorInfo?.has(dataId) === false) store.delete(dataId);
}

/** Frees all data that `account` pays for; its tensors cannot be read any more. */
export function freeAll(account: DataAccount): void {
  const { store } = installation();
  for (const dataId of account.dataIds) store.bury(dataId);
}

/** tfjs's table of the data that tensors refer to. */
function tensorInfoOf(engine: object): WeakMap<object, unknown> | undefined {
  const { state } = engine as { state?: { tensorInfo?: WeakMap<object, unknown> } };
  return state?.tensorInfo;
}

function installation(): { backend: CpuBackend; store: CountingStore } {
  const backend = tf.engine().findBackend(CPU_BACKEND_NAME) as CpuBackend | null;
  assert(backend !== null, "tfjs's cpu backend is registered");
  if (installed?.backend !== backend) {
    const members: Partial<CpuBackend> = backend;
    const known =
      tensorInfoOf(tf.engine()) instanceof WeakMap &&
      typeof members.firstUse === 'boolean' &&
      (['get', 'set', 'has', 'delete', 'numDataIds'] as const).every(
        (name) => typeof members.data?.[name] === 'function',
      );
    if (!known) {
      throw new SpillwayError(
        'INTERNAL',
        "tfjs's cpu backend lacks members that Spillway relies on; install @tensorflow/tfjs-backend-cpu 4.22.0",
      );
    }
    backend.firstUse = false;
    const store = new CountingStore(backend.data);
    backend.data = store;
    installed = { backend, store };
  }
  return installed;
}

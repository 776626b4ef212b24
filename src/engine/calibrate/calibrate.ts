/**
 * @file Measures what plans predict by, and keeps it: copies, the optimizer, a disk, a model's
 * blocks. Takes 20 seconds at most: on a slow machine it repeats less and computes shorter rows.
 */
import type { ComputeDtype } from '../../../core/types.js';
import { createDevice } from '../../../tiers/device/create-device.js';
import { HostPool } from '../../../tiers/host/host-pool.js';
import { createIoBackend } from '../../../tiers/nvme/create-io-backend.js';
import type { MeasuredCompute, UpdateCosts } from '../../plan/costs.js';
import { releaseAll, type Release } from '../release.js';
import { budgetsOf } from '../resources.js';
import { PRODUCT_BYTES } from './beside-compute.js';
import { COPY_BYTES, CopyArea } from './copy-area.js';
import { CostStore, type CopyCosts } from './cost-store.js';
import { Deadline } from './deadline.js';
import type { ComputeRequest } from './affordable-step.js';
import { measureCompute, type MeasuringParts } from './measure-compute.js';
import { measureCopies } from './measure-copies.js';
import { measureDisk, type DiskMeasurement } from './measure-disk.js';
import { measureNvmeUpdate } from './measure-nvme-update.js';
import { measureUpdate } from './measure-update.js';
import { UpdateArea } from './update-area.js';

/** What to measure. */
export interface CalibrationRequest {
  readonly device: string;
  readonly dtype: ComputeDtype;
  readonly workers: number;
  /** Folders of the NVMe tier, measured together; none: no disk is measured. */
  readonly nvmePaths: readonly string[];
  /** A model's blocks; undefined: none are measured. */
  readonly compute: ComputeRequest | undefined;
  /** Where results are kept. Default: the user's cache. */
  readonly folder?: string;
  /** Seconds to spend at most, but for what one repetition of everything takes. Default 17. */
  readonly seconds?: number;
  /** Of them for blocks at least, however little time is left. Default 2. */
  readonly leastComputeSeconds?: number;
  /** Ends the measurement under way, keeping what was measured before. */
  readonly signal?: AbortSignal;
}

/** What was measured. */
export interface Calibration {
  readonly device: string;
  readonly copies: CopyCosts;
  readonly update: UpdateCosts;
  readonly disk: DiskMeasurement | undefined;
  /** Why the disk was not reached by io_uring; undefined where it was, or is not measured. */
  readonly ioReason: string | undefined;
  readonly compute: readonly MeasuredCompute[];
}

/** Under 20, so that starting and ending fit in. */
const SECONDS = 17;

/** Shares of the time that are left to what comes after. */
const SHARES = { memory: 0.08, copies: 0.1, updates: 0.1, disk: 0.4, nvmeUpdate: 0.2 };

const LEAST_COMPUTE_SECONDS = 2;

/** Room for what is measured; only what is touched is taken. */
const ARENA_BYTES = 2 ** 32;

/**
 * Measures one thing after the other and keeps each as it is known.
 *
 * @throws DEVICE_UNAVAILABLE, NVME_FULL, PATH_UNWRITABLE, IO_ERROR, and as planning the model does;
 *   the signal's reason. Nothing is left in the folders of the NVMe tier then
 */
export async function calibrate(request: CalibrationRequest): Promise<Calibration> {
  const owned: Release[] = [];
  let calibration: Calibration;
  try {
    const until = Deadline.in(request.seconds ?? SECONDS, request.signal);
    calibration = await measureAll(request, owned, until);
  } catch (error) {
    await releaseAll(owned);
    throw error;
  }
  const [failure] = await releaseAll(owned);
  if (failure !== undefined) throw failure.error;
  return calibration;
}

/** @param owned receives how to free what was made, oldest first, also when this throws */
async function measureAll(
  request: CalibrationRequest,
  owned: Release[],
  until: Deadline,
): Promise<Calibration> {
  const { compute, signal } = request;
  const store = await CostStore.open(request.folder);
  owned.push(() => store.close());
  const arena = HostPool.create({ budgetBytes: ARENA_BYTES });
  owned.push(() => arena.dispose());
  const stepBytes = compute === undefined ? 0 : budgetsOf(compute.options).device;
  const budgetBytes = stepBytes + COPY_BYTES + PRODUCT_BYTES;
  const device = await createDevice(request.device, { budgetBytes });
  owned.push(() => device.dispose());
  const copyArea = await CopyArea.create(device, arena, until.part(SHARES.memory));
  owned.push(() => copyArea.dispose());
  const updateArea = await UpdateArea.create(request, arena, until.part(SHARES.memory));
  owned.push(() => updateArea.dispose());
  const parts = { device, copyArea, updateArea };
  const known = await measureParts({ ...parts, arena, store }, request, until);
  if (compute === undefined) return { ...known, compute: [] };
  const time = until.atLeast(request.leastComputeSeconds ?? LEAST_COMPUTE_SECONDS);
  const calibration = { ...known, ...(await measureCompute(compute, parts, known, time)) };
  // What was cut short is not kept.
  signal?.throwIfAborted();
  await keep(store, request, calibration);
  return calibration;
}

async function keep(
  store: CostStore,
  { dtype, workers }: CalibrationRequest,
  { device, copies, update, compute }: Omit<Calibration, 'disk' | 'ioReason'>,
): Promise<void> {
  await store.putCopies(device, copies);
  await store.putUpdate({ dtype, workers }, update);
  await store.putCompute(device, compute);
}

/** Where disks find memory, and results their place. */
interface Kept {
  readonly arena: HostPool;
  readonly store: CostStore;
}

/** Everything but blocks. */
async function measureParts(
  { device, copyArea, updateArea, arena, store }: MeasuringParts & Kept,
  request: CalibrationRequest,
  until: Deadline,
): Promise<Omit<Calibration, 'compute'>> {
  const { dtype, workers, nvmePaths, signal } = request;
  signal?.throwIfAborted();
  const copies = await measureCopies(device, copyArea, until.part(SHARES.copies));
  const update = await measureUpdate(device, updateArea, until.part(SHARES.updates));
  signal?.throwIfAborted();
  const known = { device: device.name, copies, update };
  await keep(store, request, { ...known, compute: [] });
  if (nvmePaths.length === 0) return { ...known, disk: undefined, ioReason: undefined };
  const { backend, reason: ioReason } = createIoBackend();
  let disk: DiskMeasurement;
  try {
    const diskRequest = { folders: nvmePaths, backend, device, arena };
    disk = await measureDisk(diskRequest, until.part(SHARES.disk));
  } finally {
    await backend.dispose();
  }
  signal?.throwIfAborted();
  await store.putDisk(nvmePaths, disk.costs);
  const nvmeUpdate = { device, arena, workers, dtype };
  const part = until.part(SHARES.nvmeUpdate);
  const streamed = await measureNvmeUpdate(nvmeUpdate, nvmePaths, part);
  signal?.throwIfAborted();
  await store.putNvmeUpdate({ dtype, workers, nvmePaths }, streamed);
  return { ...known, disk, ioReason };
}

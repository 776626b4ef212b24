/**
 * @file Measures what plans predict by, and keeps it: copies, the optimizer, a disk, a model's
 * blocks. Takes less than 20 seconds on an idle machine.
 */
import { createDevice } from '../../../tiers/device/create-device.js';
import { HostPool } from '../../../tiers/host/host-pool.js';
import { createIoBackend } from '../../../tiers/nvme/create-io-backend.js';
import type { ComputeDtype } from '../../../core/types.js';
import type { MeasuredCompute } from '../../plan/costs.js';
import { CostStore, type CopyCosts, type UpdateCosts } from './cost-store.js';
import { measureCompute, type ComputeRequest } from './measure-compute.js';
import { measureCopies } from './measure-copies.js';
import { measureDisk, type DiskMeasurement } from './measure-disk.js';
import { measureUpdate } from './measure-update.js';

/** What to measure. */
export interface CalibrationRequest {
  readonly device: string;
  readonly dtype: ComputeDtype;
  readonly workers: number;
  /** Folders of the NVMe tier, measured together; none: no disk is measured. */
  readonly nvmePaths: readonly string[];
  /** A model's blocks; undefined: none are measured. */
  readonly compute: Omit<ComputeRequest, 'seconds'> | undefined;
  /** Where results are kept. Default: the user's cache. */
  readonly folder?: string;
  /** Seconds to spend on a model's blocks, about. Default 8. */
  readonly computeSeconds?: number;
  /** Seconds of each of 27 measurements of the disk. Default 0.2. */
  readonly rateSeconds?: number;
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

/** Seconds for a model's blocks. */
const COMPUTE_SECONDS = 8;

/** Room for what is measured; only what is touched is taken. */
const ARENA_BYTES = 2 ** 32;
const COPY_BYTES = 2 ** 28;

/**
 * Measures one thing after the other and keeps each as it is known.
 *
 * @throws DEVICE_UNAVAILABLE, NVME_FULL, PATH_UNWRITABLE, IO_ERROR, and as planning the model does
 */
export async function calibrate(request: CalibrationRequest): Promise<Calibration> {
  const { dtype, workers, nvmePaths } = request;
  const store = CostStore.open(request.folder);
  const arena = HostPool.create({ budgetBytes: ARENA_BYTES });
  try {
    const device = await createDevice(request.device, { budgetBytes: COPY_BYTES });
    const { name } = device;
    let copies: CopyCosts;
    try {
      copies = await measureCopies(device, arena);
    } finally {
      await device.dispose();
    }
    await store.putCopies(name, copies);
    const update = await measureUpdate(arena, workers, dtype);
    await store.putUpdate({ dtype, workers }, update);
    let disk: DiskMeasurement | undefined;
    let ioReason: string | undefined;
    if (nvmePaths.length > 0) {
      const { backend, reason } = createIoBackend();
      ioReason = reason;
      try {
        disk = await measureDisk(nvmePaths, backend, arena, request.rateSeconds);
      } finally {
        await backend.dispose();
      }
      await store.putDisk(nvmePaths, disk.costs);
    }
    const compute =
      request.compute === undefined
        ? []
        : await measureCompute({
            ...request.compute,
            seconds: request.computeSeconds ?? COMPUTE_SECONDS,
          });
    await store.putCompute(name, compute);
    return { device: name, copies, update, disk, ioReason, compute };
  } finally {
    arena.dispose();
    await store.close();
  }
}

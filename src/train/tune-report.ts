/**
 * @file `spillway tune`: measures copies, the optimizer, the run's folders and its model's blocks,
 * and keeps the results for `spillway plan`.
 */
import type { Logger } from '../../core/logger.js';
import { readModelDefinition } from '../checkpoint/read-model-definition.js';
import type { TrainConfig } from '../config/train-config.js';
import { emptyBatch } from '../data/example-batch.js';
import { calibrate } from '../engine/calibrate/calibrate.js';
import { costFolder } from '../engine/calibrate/cost-store.js';
import type { DiskRate } from '../engine/calibrate/measure-disk.js';
import type { ComputeRequest } from '../engine/calibrate/affordable-step.js';
import { engineOptionsOf } from './engine-options-of.js';

/** What `spillway tune --json` prints; keys are stable. */
export interface TuneReport {
  readonly device: string;
  readonly seconds: number;
  readonly upload_bytes_per_second: number;
  readonly upload_seconds_per_piece: number;
  readonly download_bytes_per_second: number;
  readonly download_seconds_per_piece: number;
  /** Of all workers together. */
  readonly adamw_elements_per_second: number;
  readonly nvme?: {
    readonly read_bytes_per_second: number;
    readonly write_bytes_per_second: number;
    /** 0: reads and writes go on at once; 1: the disk does one or the other. */
    readonly sharing: number;
    /** Whether the page cache was bypassed. */
    readonly direct: boolean;
    readonly rates: readonly DiskRate[];
  };
  /** Seconds and multiply-adds per compute operation of the model's blocks. */
  readonly compute: readonly {
    readonly operation: string;
    readonly seconds: number;
    readonly multiply_adds: number;
  }[];
  /** Where the results are kept. */
  readonly folder: string;
}

/**
 * Measures for 20 seconds at most.
 *
 * @throws as planning the model does, NVME_FULL, PATH_UNWRITABLE, DEVICE_UNAVAILABLE; the signal's
 *   reason
 */
export async function tuneReport(
  config: TrainConfig,
  logger: Logger,
  signal: AbortSignal,
): Promise<TuneReport> {
  const start = performance.now();
  const { device, copies, update, disk, ioReason, compute } = await calibrate({
    device: config.device,
    dtype: config.dtype,
    workers: config.optimizerWorkers,
    nvmePaths: config.nvmePath,
    // The key is not required here.
    compute: await computeRequest(config, config.modelNameOrPath, logger),
    signal,
  });
  if (ioReason !== undefined) {
    logger.warn(
      `NVMe files were measured through the thread pool instead of io_uring (${ioReason})`,
    );
  }
  if (disk?.direct === false) {
    logger.warn(
      'the folders of nvme_path do not bypass the page cache; the rates are the cache\u2019s',
    );
  }
  return {
    device,
    seconds: (performance.now() - start) / 1000,
    upload_bytes_per_second: copies.upload.bytesPerSecond,
    upload_seconds_per_piece: copies.upload.secondsPerPiece,
    download_bytes_per_second: copies.download.bytesPerSecond,
    download_seconds_per_piece: copies.download.secondsPerPiece,
    adamw_elements_per_second: update.updateElementsPerSecond,
    ...(disk === undefined
      ? {}
      : {
          nvme: {
            read_bytes_per_second: disk.costs.nvmeRead.bytesPerSecond,
            write_bytes_per_second: disk.costs.nvmeWrite.bytesPerSecond,
            sharing: disk.costs.nvmeSharing,
            direct: disk.direct,
            rates: disk.rates,
          },
        }),
    compute: compute.map(({ kind, seconds, multiplyAdds }) => ({
      operation: kind,
      seconds,
      multiply_adds: multiplyAdds,
    })),
    folder: costFolder(),
  };
}

/** The blocks of the configured model, if there is one. */
async function computeRequest(
  config: TrainConfig,
  modelNameOrPath: string | undefined,
  logger: Logger,
): Promise<ComputeRequest | undefined> {
  const { strictConfig, packing, perDeviceTrainBatchSize: batchSize } = config;
  if (modelNameOrPath === undefined) return undefined;
  const model = await readModelDefinition(modelNameOrPath, { strictConfig, logger });
  return {
    options: { ...engineOptionsOf(config), model, logger },
    length: Math.min(config.maxLength, model.maxPositions),
    batchOf: (length) => emptyBatch({ batchSize, length, packed: packing }),
  };
}

/**
 * @file What compute operations work with; the caller of ComputeRunner owns all of it.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import type { Device, DeviceRegion } from '../../tiers/device/device.js';
import type { Block, ParamName } from '../model/block.js';
import type { PackedParams } from '../plan/packed-params.js';
import type { ParamAddress, ParameterLayout } from '../plan/parameter-layout.js';
import type { KeyValueCache } from './key-value-cache.js';

export interface ComputeParts {
  readonly device: Device;
  readonly region: DeviceRegion;
  readonly blocks: readonly Block[];
  readonly layout: ParameterLayout;
  readonly packed: readonly PackedParams[];
  /** Names of a block's parameters whose gradients are wanted. */
  readonly trainableOf: (block: Block) => readonly ParamName[];
  /** A new tensor over a parameter, or rows of one, that is homed on the device. */
  readonly alias: (address: ParamAddress, rows?: RowRange) => Tensor;
  /** Shape of the input of a block for a micro-batch. */
  readonly inputShape: (block: number, microBatch: number) => readonly number[];
  /** Told the shape of each activation, as it is made. */
  readonly onActivation: (block: number, microBatch: number, shape: readonly number[]) => void;
  /** Counts bytes of batch fields. */
  readonly countUpload: (bytes: number) => void;
  /** Where sequences are continued. */
  readonly cache?: Pick<KeyValueCache, 'views'>;
}

/** Rows of a matrix. */
export interface RowRange {
  readonly first: number;
  readonly count: number;
}

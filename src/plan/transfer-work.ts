/**
 * @file What a transfer does beside the bytes that cross links: copies within the device's memory,
 * and the host's passes over gradients.
 *
 * Pure functions.
 */
import { assert } from '../../core/errors.js';
import type { Block, ParamName } from '../model/block.js';
import { wholeParams, type PackingInput } from './packed-params.js';
import type { ParamAddress } from './parameter-layout.js';
import { PIECE_BYTES } from './simulated-link.js';
import type { Operation, OperationId, Transfer } from './step-plan.js';
import { storedBytes } from './transfer-bytes.js';

/** In bytes, but for pieces. */
export interface TransferWork {
  /** Copies on the device's link: what lies in memory goes as a whole, by parameter. */
  readonly pieces: number;
  /** Fetched from where the device is home; they keep its upload queue busy and cross no link. */
  readonly localBytes: number;
  /** Gradients that the host checks piece by piece: norm leaves. */
  readonly checkedBytes: number;
  /** Gradients that it also adds to what is there. */
  readonly addedBytes: number;
}

/** What counting needs to know. */
export interface TransferWorkInput extends Pick<PackingInput, 'layout' | 'homes' | 'dtype'> {
  readonly blocks: readonly Block[];
}

const NONE: TransferWork = { pieces: 0, localBytes: 0, checkedBytes: 0, addedBytes: 0 };

/** Counts transfers of one plan; nothing for other operations. */
export function transferWork(input: TransferWorkInput): (operation: Operation) => TransferWork {
  const known = new Map<OperationId, TransferWork>();
  return (operation) => {
    const { id, lane } = operation;
    if (lane === 'compute' || lane === 'update') return NONE;
    let work = known.get(id);
    if (work === undefined) known.set(id, (work = workOf(input, operation)));
    return work;
  };
}

function workOf(input: TransferWorkInput, { action, bytes }: Operation): TransferWork {
  const transfer = action as Transfer;
  const isStaged = (bytes.nvme_read ?? 0) > 0;
  const moved = bytes.upload ?? bytes.download ?? 0;
  const staged = { ...NONE, pieces: pieceCount(moved) };
  switch (transfer.kind) {
    case 'fetch-params':
      return isStaged ? staged : { ...NONE, pieces: fetchedCount(input, transfer.block) };
    case 'fetch-rows':
      // From NVMe a row at a time, as its chunk comes by.
      return isStaged ? { ...NONE, pieces: rowCount(input, moved) } : staged;
    case 'fetch-activation':
      return isStaged ? staged : { ...NONE, pieces: 1 };
    case 'fetch-tile': {
      const localBytes = tileBytes(input, transfer.tile);
      return isStaged ? staged : { ...NONE, pieces: 1, localBytes };
    }
    case 'write-gradients':
    case 'write-tile':
      return { ...staged, ...gradients(moved, !transfer.first) };
    // A table's gradient is gone through whole.
    case 'write-rows':
    case 'merge-uses':
      return { ...NONE, ...gradients(addressOf(input, transfer.param).length * 4, true) };
    default:
      return staged;
  }
}

/** Rows of the first block's tables in so many bytes. */
function rowCount(input: TransferWorkInput, bytes: number): number {
  const [block] = input.blocks;
  assert(block?.kind === 'row', 'rows belong to a row block');
  const widths = block.gathers.map(({ param }) => addressOf(input, param).spec.shape[1] ?? 1);
  return bytes / (Math.min(...widths) * storedBytes('param', input.dtype));
}

function pieceCount(bytes: number): number {
  return Math.ceil(bytes / PIECE_BYTES);
}

function gradients(
  bytes: number,
  isAdded: boolean,
): Pick<TransferWork, 'checkedBytes' | 'addedBytes'> {
  return { checkedBytes: bytes, addedBytes: isAdded ? bytes : 0 };
}

/** Parameters that a block fetches whole; tensors of float32 that are homed on the device are not. */
function fetchedCount({ blocks, homes, ...input }: TransferWorkInput, block: number): number {
  return wholeParams(blocks[block]!).filter((param) => {
    const { group } = addressOf({ blocks, homes, ...input }, param);
    return input.dtype !== 'float32' || homes[group]!.param !== 'device';
  }).length;
}

/** Bytes of a tile of a matrix that is homed on the device. */
function tileBytes(input: TransferWorkInput, tile: number): number {
  const block = input.blocks.at(-1);
  assert(block?.kind === 'tiled', 'tiles belong to a tiled block');
  const address = addressOf(input, block.tiledParam);
  if (input.homes[address.group]!.param !== 'device') return 0;
  const [rows = 0, columns = 0] = address.spec.shape;
  const count = Math.min(block.tileRows, rows - tile * block.tileRows);
  return count * columns * storedBytes('param', input.dtype);
}

function addressOf({ layout }: TransferWorkInput, param: ParamName): ParamAddress {
  const address = layout.params.get(param);
  assert(address !== undefined, 'the layout has every parameter', { param });
  return address;
}

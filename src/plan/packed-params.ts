/**
 * @file Where each parameter that a block loads whole lies within its slot of the region.
 *
 * In the order of `uses`, each at a multiple of a cache line. Float32 parameters that are homed on
 * the device are read where they live, and have no place.
 */
import type { ComputeDtype } from '../../core/types.js';
import type { Block, ParamName } from '../model/block.js';
import type { MemoryPlan } from './placement.js';
import type { ParamAddress, ParameterLayout } from './parameter-layout.js';
import { chargedBytes, keepsBfloat16 } from './tensor-bytes.js';

/** A parameter's place in its block's slot. */
export interface PackedParam {
  readonly address: ParamAddress;
  /** From the slot's start. */
  readonly byteOffset: number;
  readonly kept: 'float32' | 'bfloat16';
}

export interface PackedParams {
  readonly params: readonly PackedParam[];
  /** Parameters that are read where they live, on the device. */
  readonly aliased: readonly ParamAddress[];
  readonly byteLength: number;
}

/** What packing depends on besides the block. */
export interface PackingInput {
  readonly layout: ParameterLayout;
  readonly homes: MemoryPlan['homes'];
  readonly dtype: ComputeDtype;
  readonly bf16Operands: boolean;
}

/** Names of the parameters that a block loads whole. */
export function wholeParams(block: Block): ParamName[] {
  if (block.kind === 'row') return [];
  return block.uses.filter((name) => block.kind !== 'tiled' || name !== block.tiledParam);
}

/** Whether compute reads a parameter where it lives: as float32 on the device. */
export function isReadAtHome(
  { group }: ParamAddress,
  { homes, dtype }: Pick<PackingInput, 'homes' | 'dtype'>,
): boolean {
  return dtype === 'float32' && homes[group]?.param === 'device';
}

/** The places of a block's whole parameters. */
export function packParams(block: Block, input: PackingInput): PackedParams {
  const { layout, dtype, bf16Operands } = input;
  const params: PackedParam[] = [];
  const aliased: ParamAddress[] = [];
  let byteLength = 0;
  for (const name of wholeParams(block)) {
    const address = layout.params.get(name)!;
    if (isReadAtHome(address, input)) {
      aliased.push(address);
      continue;
    }
    const kept = keepsBfloat16(address.spec.shape, dtype, bf16Operands) ? 'bfloat16' : 'float32';
    params.push({ address, byteOffset: byteLength, kept });
    byteLength += chargedBytes(address.length * (kept === 'float32' ? 4 : 2));
  }
  return { params, aliased, byteLength };
}

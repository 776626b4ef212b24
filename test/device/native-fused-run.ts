/**
 * @file Runs fused kernels of the native device on given threads and instruction sets: arrays in,
 * arrays out.
 */
import { native } from '../../tiers/native/binding.js';
import type { Isa } from '../../tiers/native/native-binding.js';
import { nativePlace, run, type Place, type Value } from './native-kernel-run.js';

/** A dense array with its shape; int32 where it is an Int32Array. */
export interface ArrayOperand {
  readonly shape: readonly number[];
  readonly values: Float32Array | Int32Array;
}

/** Where a run takes place. */
export interface RunPlace {
  readonly isa: Isa;
  readonly threads: number;
}

/** One backend per number of threads. */
const places = new Map<number, Place>();

function placeOf(threads: number): Place {
  const place = places.get(threads) ?? nativePlace(threads);
  places.set(threads, place);
  return place;
}

function valueOf({ shape, values }: ArrayOperand): Value {
  return { shape, data: values, dtype: values instanceof Int32Array ? 'int32' : 'float32' };
}

/** The outputs of tfjs kernel `name`; inputs that are undefined are left out. */
export function runFused(
  name: string,
  inputs: Readonly<Record<string, ArrayOperand | undefined>>,
  attrs: object,
  { isa, threads }: RunPlace,
): { shape: readonly number[]; values: Float32Array }[] {
  const values = Object.entries(inputs).flatMap(([key, operand]) =>
    operand === undefined ? [] : [[key, valueOf(operand)] as const],
  );
  const addon = native()!;
  const before = addon.isa();
  addon.setIsa(isa);
  try {
    return run(placeOf(threads), name, Object.fromEntries(values), attrs).map(
      ({ shape, data }) => ({ shape, values: data as Float32Array }),
    );
  } finally {
    addon.setIsa(before);
  }
}

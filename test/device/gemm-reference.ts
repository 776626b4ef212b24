/**
 * @file Runs the C++ kernel `gemm` on arrays, and its references: the fma chain and float64.
 */
import { gemmArgs } from '../../tiers/device/native/kernels/gemm-args.js';
import { kernelIdOf } from '../../tiers/device/native/kernel-id.js';
import { native } from '../../tiers/native/binding.js';
import type { Isa } from '../../tiers/native/native-binding.js';
import { fusedMultiplyAdd } from '../../tiers/native/portable/fused-multiply-add.js';
import { portableKernels } from '../../tiers/native/portable/kernels.js';

/** One operand's memory: `batch` matrices of stored rows `leading` apart. */
export interface Operand {
  readonly values: Float32Array | Uint16Array;
  readonly transposed: boolean;
  readonly leading: number;
  /** 0 shares one matrix. */
  readonly batchStride: number;
}

/** A product; `c` may have rows further apart than they are long. */
export interface Product {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch: number;
  readonly a: Operand;
  readonly b: Operand;
  readonly bias?: Float32Array;
  readonly relu?: boolean;
  readonly leadingC?: number;
}

export interface Place {
  readonly isa: Isa;
  readonly threads: number;
}

const align = (bytes: number): number => Math.ceil(bytes / 64) * 64;

/** What memory that no kernel wrote holds: a NaN that no arithmetic makes. */
export const UNTOUCHED = 0x7fc0_1234;

/**
 * C, `batch` matrices of `m` rows `leadingC` apart, and 64 floats after it. Operands end where
 * their memory ends or at NaN, so that an element too many shows.
 */
export function runGemm(product: Product, { isa, threads }: Place): Float32Array {
  const { m, n, k, batch, a, b, bias, relu, leadingC = n } = product;
  const lengthC = batch * m * leadingC + 64;
  const sizes = [lengthC * 4, a.values.byteLength, b.values.byteLength, (bias?.length ?? 0) * 4];
  const offsets: number[] = [];
  let used = 64;
  for (const size of sizes) {
    offsets.push(used);
    used += align(size) + 64;
  }
  const memory = new Uint8Array(used);
  new Uint32Array(memory.buffer).fill(UNTOUCHED);
  const place = (values: Float32Array | Uint16Array, index: number): number => {
    memory.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), offsets[index]);
    return offsets[index]!;
  };
  const operand = ({ values, ...layout }: Operand, index: number) => ({
    ...layout,
    offset: place(values, index),
    type: values instanceof Uint16Array ? ('bfloat16' as const) : ('float32' as const),
  });
  const args = gemmArgs({
    ...{ m, n, k, batch },
    a: operand(a, 1),
    b: operand(b, 2),
    c: { offset: offsets[0]!, leading: leadingC, batchStride: m * leadingC },
    ...(bias === undefined ? {} : { biasOffset: place(bias, 3) }),
    activation: relu === true ? 'relu' : 'none',
  });
  const addon = native()!;
  const before = addon.isa();
  addon.setIsa(isa);
  try {
    addon.runKernelNow(kernelIdOf('gemm'), memory, Float64Array.from(args), threads);
  } finally {
    addon.setIsa(before);
  }
  return new Float32Array(memory.buffer, offsets[0], lengthC).slice();
}

/** Reads element (row, column) of op(X) of a batch element. */
function reader({ values, transposed, leading, batchStride }: Operand) {
  let floats: Float32Array;
  if (values instanceof Uint16Array) {
    floats = new Float32Array(values.length);
    portableKernels.bf16ToF32(values, floats);
  } else {
    floats = values;
  }
  const [rowStep, columnStep] = transposed ? [1, leading] : [leading, 1];
  return (batch: number, row: number, column: number): number =>
    floats[batch * batchStride + row * rowStep + column * columnStep]!;
}

/** Visits every element of C with its operands' readers. */
function eachElement(
  { m, n, batch, a, b }: Product,
  visit: (
    at: number,
    column: number,
    aOf: (step: number) => number,
    bOf: (step: number) => number,
  ) => void,
): void {
  const [readA, readB] = [reader(a), reader(b)];
  for (let element = 0; element < batch; element++) {
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        const at = (element * m + i) * n + j;
        visit(
          at,
          j,
          (step) => readA(element, i, step),
          (step) => readB(element, step, j),
        );
      }
    }
  }
}

/** C by its definition: one chain of fma over ascending k from +0, then bias, then relu. */
export function chainGemm(product: Product): Float32Array {
  const { m, n, k, batch, bias, relu } = product;
  const c = new Float32Array(batch * m * n);
  eachElement(product, (at, column, aOf, bOf) => {
    let sum = 0;
    for (let step = 0; step < k; step++) sum = fusedMultiplyAdd(aOf(step), bOf(step), sum);
    if (bias !== undefined) sum = Math.fround(sum + bias[column]!);
    c[at] = relu === true ? Math.max(0, sum) : sum;
  });
  return c;
}

/** C in float64, and per element the sum of the magnitudes that were added. */
export function doubleGemm(product: Product): { sums: Float64Array; sizes: Float64Array } {
  const { m, n, k, batch, bias } = product;
  const sums = new Float64Array(batch * m * n);
  const sizes = new Float64Array(batch * m * n);
  eachElement(product, (at, column, aOf, bOf) => {
    let [sum, size] = [bias?.[column] ?? 0, Math.abs(bias?.[column] ?? 0)];
    for (let step = 0; step < k; step++) {
      const term = aOf(step) * bOf(step);
      sum += term;
      size += Math.abs(term);
    }
    sums[at] = sum;
    sizes[at] = size;
  });
  return { sums, sizes };
}

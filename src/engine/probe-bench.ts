/**
 * @file What a probe works with: parameters and inputs of zeros, stored as the engine stores them,
 * and the peaks of what runs on them.
 *
 * Owns every tensor that it makes or is given, until `measure` returns.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError, assert } from '../../core/errors.js';
import type { ComputeDtype } from '../../core/types.js';
import type { Device } from '../../tiers/device/device.js';
import type { Block, BlockAux, HostTensor, Params } from '../model/block.js';
import type { ParamAddress, ParameterLayout } from '../plan/parameter-layout.js';
import { keepsBfloat16 } from '../plan/tensor-bytes.js';

/** What bfloat16 parameters are uploaded from, piece by piece. */
const ZEROS = new Uint8Array(2 ** 20);

export class ProbeBench {
  readonly device: Device;
  readonly layout: ParameterLayout;
  readonly #dtype: ComputeDtype;
  /** Parameters as the engine loads them, and the bytes that they were charged then. */
  readonly #loaded: Tensor[] = [];
  #loadedBytes = 0;
  /** Everything else, freed at the end. */
  readonly #made: Tensor[] = [];
  #uncountedBytes = 0;

  constructor(device: Device, layout: ParameterLayout, dtype: ComputeDtype) {
    this.device = device;
    this.layout = layout;
    this.#dtype = dtype;
  }

  /**
   * Runs `body` without the budget and frees everything. `widenedBytes` are those of float32 copies
   * of bfloat16 parameters, made by kernels that do not read these.
   */
  measure<T>(body: () => T): { readonly value: T; readonly widenedBytes: number } {
    const result: { value?: T; widenedBytes?: number } = {};
    const { ledger } = this.device;
    ledger.measure(() => {
      try {
        result.value = body();
        const { liveBytes } = ledger;
        for (const tensor of this.#loaded) tensor.dispose();
        // The copies live as long as the parameter.
        result.widenedBytes = liveBytes - ledger.liveBytes - this.#loadedBytes;
      } finally {
        for (const tensor of [...this.#made, ...this.#loaded]) tensor.dispose();
      }
    });
    assert(result.widenedBytes !== undefined, 'the probe has run');
    return { value: result.value as T, widenedBytes: result.widenedBytes };
  }

  address(name: string): ParamAddress {
    const address = this.layout.params.get(name);
    assert(address !== undefined, 'the parameter is known', { name });
    return address;
  }

  /** The parameters `names`, stored as the engine's loader stores them. */
  params(names: readonly string[]): Params {
    return Object.fromEntries(
      names.map((name) => [name, this.#load(this.address(name).spec.shape)]),
    );
  }

  /** The fields that `block` reads of `aux`, on the device. @throws DATA_INVALID without one */
  fields(block: Block, aux: BlockAux): Record<string, Tensor> {
    const optional = (block.readsIfPresent ?? []).filter((name) => name in aux.fields);
    const names = [...(block.reads ?? []), ...optional];
    return Object.fromEntries(
      names.map((name) => [name, this.#field(block.name, name, aux.fields)]),
    );
  }

  zeros(shape: readonly number[]): Tensor {
    const tensor = this.#filled(shape);
    this.#made.push(tensor);
    return tensor;
  }

  /** Runs `body`, keeps its tensors until the end and says how far its peak lies above what is
   * live. */
  peak(body: () => Tensor[]): { tensors: Tensor[]; bytes: number } {
    const { ledger } = this.device;
    const before = ledger.liveBytes - this.#uncountedBytes;
    ledger.resetPeak();
    const tensors = body();
    this.#made.push(...tensors);
    return { tensors, bytes: ledger.peakBytes - before - this.#uncountedBytes };
  }

  /** Takes over what a run made, to be freed at the end. */
  own(tensors: readonly Tensor[]): void {
    this.#made.push(...tensors);
  }

  /** Makes tensors that the `peak` around does not count; it has not been reached yet. */
  uncounted(make: () => Tensor[]): Tensor[] {
    const { liveBytes } = this.device.ledger;
    const tensors = make();
    this.#uncountedBytes += this.device.ledger.liveBytes - liveBytes;
    return tensors;
  }

  #load(shape: readonly number[]): Tensor {
    const { ledger, capabilities } = this.device;
    const { liveBytes } = ledger;
    const { bf16Operands } = capabilities;
    let tensor: Tensor;
    if (keepsBfloat16(shape, this.#dtype, bf16Operands)) {
      const upload = this.device.beginUpload(shape, 'a probed parameter', { keepBfloat16: true });
      const length = tf.util.sizeFromShape([...shape]);
      for (let start = 0; start < length; start += ZEROS.length / 2) {
        const piece = ZEROS.subarray(0, 2 * Math.min(ZEROS.length / 2, length - start));
        void upload.write(start, piece, 'bfloat16');
      }
      tensor = upload.finish();
    } else {
      tensor = this.#filled(shape);
    }
    this.#loaded.push(tensor);
    this.#loadedBytes += ledger.liveBytes - liveBytes;
    return tensor;
  }

  #field(block: string, name: string, fields: BlockAux['fields']): Tensor {
    const field: HostTensor | undefined = fields[name];
    if (field === undefined) {
      throw new SpillwayError(
        'DATA_INVALID',
        `block ${block} reads the field ${name}, which the example batch lacks`,
        { fields: Object.keys(fields) },
      );
    }
    const type = field.data instanceof Int32Array ? 'int32' : 'float32';
    const tensor = this.device.run(() => tf.tensor(field.data.slice(), [...field.shape], type));
    this.#made.push(tensor);
    return tensor;
  }

  /** Not tf.zeros, which makes an array of JavaScript's first, however large. */
  #filled(shape: readonly number[]): Tensor {
    return this.device.run(() => tf.fill([...shape], 0));
  }
}

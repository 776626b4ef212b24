/**
 * @file Measures what a block needs on the device by running it once on zeros, unbudgeted.
 *
 * The step's own functions run on the largest shapes; the ledger's peak gives each phase's
 * workspace exactly, for built-in and users' blocks alike. Blocks of one kind, input shape and
 * set of trainable parameters are probed once. The cost is one forward and reverse pass per kind. (A device that computes shapes
 * only replaces the run later; the profile stays the same.)
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError, assert } from '../../core/errors.js';
import type { ComputeDtype } from '../../core/types.js';
import type { Device } from '../../tiers/device/device.js';
import type {
  Block,
  BlockAux,
  HostTensor,
  MicroBatch,
  Params,
  TiledBlock,
} from '../model/block.js';
import type { BlockProfile, TiledProfile } from '../plan/block-profile.js';
import type { ParameterLayout } from '../plan/parameter-layout.js';
import { keepsBfloat16, tensorBytes } from '../plan/tensor-bytes.js';
import {
  forwardDense,
  forwardRows,
  prepareTiled,
  reverse,
  runTiled,
  seedOf,
} from './block-compute.js';

/** What bfloat16 parameters are uploaded from, piece by piece. */
const ZEROS = new Uint8Array(2 ** 20);

/** Profiles of all blocks at the shapes of `example`. */
export function probeWorkspaces(
  device: Device,
  blocks: readonly Block[],
  layout: ParameterLayout,
  example: MicroBatch,
  dtype: ComputeDtype,
): BlockProfile[] {
  const known = new Map<string, BlockProfile>();
  const profiles: BlockProfile[] = [];
  for (const [index, block] of blocks.entries()) {
    const inputShape = profiles[index - 1]?.outputShape;
    // Blocks of one kind need other workspaces where other parameters are frozen.
    const uses = block.uses.map((name) => {
      const spec = layout.params.get(name)?.spec;
      return `${spec?.shape.join('x') ?? ''}${spec?.trainable === false ? ' frozen' : ''}`;
    });
    const key = [block.kind, block.kindKey, inputShape?.join() ?? '', ...uses].join('/');
    let profile = known.get(key);
    if (profile === undefined) {
      profile = new Probe(device, layout, block, index, inputShape, example, dtype).run();
      known.set(key, profile);
    }
    profiles.push(profile);
  }
  return profiles;
}

function bytesOf(tensors: readonly Tensor[]): number {
  return tensors.reduce((sum, tensor) => sum + tensorBytes(tensor.size), 0);
}

class Probe {
  readonly #device: Device;
  readonly #layout: ParameterLayout;
  readonly #block: Block;
  readonly #inputShape: readonly number[] | undefined;
  readonly #aux: BlockAux;
  readonly #dtype: ComputeDtype;
  /** Parameters as the engine loads them, and the bytes that they were charged then. */
  readonly #loaded: Tensor[] = [];
  #loadedBytes = 0;
  /** Everything else made for the probe, freed at its end. */
  readonly #made: Tensor[] = [];

  constructor(
    device: Device,
    layout: ParameterLayout,
    block: Block,
    index: number,
    inputShape: readonly number[] | undefined,
    example: MicroBatch,
    dtype: ComputeDtype,
  ) {
    this.#dtype = dtype;
    this.#device = device;
    this.#layout = layout;
    this.#block = block;
    this.#inputShape = inputShape;
    const { fields } = example;
    this.#aux = {
      fields,
      tensors: {},
      lossScale: 1,
      seed: 0,
      step: 0,
      microBatch: 0,
      block: index,
    };
  }

  run(): BlockProfile {
    const profile: { value?: BlockProfile } = {};
    const { ledger } = this.#device;
    ledger.measure(() => {
      try {
        const value = this.#profile();
        const { liveBytes } = ledger;
        for (const tensor of this.#loaded) tensor.dispose();
        // Kernels that do not read bfloat16 have left copies, which live as long as the parameter.
        const widenedBytes = liveBytes - ledger.liveBytes - this.#loadedBytes;
        profile.value = { ...value, widenedBytes };
      } finally {
        for (const tensor of [...this.#made, ...this.#loaded]) tensor.dispose();
      }
    });
    assert(profile.value !== undefined, 'the probe has run');
    return profile.value;
  }

  #profile(): Omit<BlockProfile, 'widenedBytes'> {
    const block = this.#block;
    const optional = (block.readsIfPresent ?? []).filter((name) => name in this.#aux.fields);
    const fields = Object.fromEntries(
      [...(block.reads ?? []), ...optional].map((name) => [name, this.#field(block.name, name)]),
    );
    const aux = { ...this.#aux, tensors: fields };
    const fieldBytes = bytesOf(Object.values(fields));
    switch (block.kind) {
      case 'row':
        return { ...this.#row(aux), fieldBytes };
      case 'tiled':
        return { ...this.#tiled(block, aux), fieldBytes };
      case 'dense':
        return { ...this.#dense(aux), fieldBytes };
    }
  }

  #row(aux: BlockAux): Omit<BlockProfile, 'fieldBytes' | 'widenedBytes'> {
    const block = this.#block;
    assert(block.kind === 'row', 'a row block');
    const rows = block.gathers.map((gather) => {
      const address = this.#layout.params.get(gather.param);
      assert(address !== undefined, 'the table is known');
      const columns = address.length / (address.spec.shape[0] ?? 1);
      return this.#zeros([gather.indices(aux.fields).length, columns]);
    });
    const output = this.#peak(() => [forwardRows(this.#device, block, rows, aux)]);
    const dy = this.#zeros(output.tensors[0]?.shape ?? []);
    const back = this.#peak(() => this.#device.run(() => block.backward(dy, aux)));
    return {
      outputShape: dy.shape,
      outputBytes: dy.size * 4,
      rowBytes: bytesOf(rows),
      forwardBytes: output.bytes,
      reverseBytes: back.bytes,
    };
  }

  #dense(aux: BlockAux): Omit<BlockProfile, 'fieldBytes' | 'widenedBytes'> {
    const block = this.#block;
    assert(block.kind === 'dense', 'a dense block');
    const params = this.#params(block.uses);
    const input = this.#inputShape === undefined ? undefined : this.#zeros(this.#inputShape);
    const inputs = input === undefined ? [] : [input];
    const output = this.#peak(() => [forwardDense(this.#device, block, params, inputs, aux)]);
    const shape = output.tensors[0]?.shape ?? [];
    const names = this.#trainable(block.uses);
    const back = this.#peak(() => {
      const { dInput, dParams } = reverse(
        this.#device,
        () => block.apply(params, inputs, aux),
        params,
        names,
        input,
        (ys) => {
          const { losses, dy } = seedOf(block, ys, aux.lossScale);
          losses.dispose();
          return [dy];
        },
      );
      return [...(dInput === undefined ? [] : [dInput]), ...Object.values(dParams)];
    });
    return {
      outputShape: shape,
      outputBytes: shape.reduce((product, length) => product * length, 4),
      rowBytes: 0,
      forwardBytes: output.bytes,
      reverseBytes: back.bytes,
    };
  }

  #tiled(block: TiledBlock, aux: BlockAux): Omit<BlockProfile, 'fieldBytes' | 'widenedBytes'> {
    const device = this.#device;
    const address = this.#layout.params.get(block.tiledParam);
    assert(
      address !== undefined && this.#inputShape !== undefined,
      'the matrix and input are known',
    );
    const rows = address.spec.shape[0] ?? 1;
    const rowCount = Math.min(block.tileRows, rows);
    const whole = block.uses.filter((name) => name !== block.tiledParam);
    const params = this.#params(whole);
    const input = this.#zeros(this.#inputShape);
    const weight = this.#zeros([rowCount, address.length / rows]);
    const tile = { weight, index: 0, firstRow: 0, rowCount };
    const prepare = this.#peak(() => prepareTiled(device, block, params, input, aux));
    const prepared = prepare.tensors;
    const begin = this.#peak(() => runTiled(device, () => block.begin(prepared, aux)));
    const forward = this.#peak(() =>
      runTiled(device, () => block.forwardTile(tile, prepared, begin.tensors, aux)),
    );
    let saved: Tensor[] = [];
    const end = this.#peak(() => {
      const result = runTiled(device, () => block.end(prepared, forward.tensors, aux));
      saved = result.saved;
      return [result.losses, ...result.saved];
    });
    const backward = this.#peak(() => {
      const result = runTiled(device, () => block.backwardTile(tile, prepared, saved, aux));
      return [result.dTile, ...result.dPrepared];
    });
    const back = this.#peak(() => {
      const { dInput, dParams } = reverse(
        device,
        () => block.prepare(params, [input], aux),
        params,
        this.#trainable(whole),
        input,
        (ys) => ys.map((y) => tf.zerosLike(y)),
      );
      return [...(dInput === undefined ? [] : [dInput]), ...Object.values(dParams)];
    });
    const tiled: TiledProfile = {
      preparedBytes: bytesOf(prepared),
      carryBytes: Math.max(bytesOf(begin.tensors), bytesOf(forward.tensors), bytesOf(saved)),
      prepareBytes: Math.max(prepare.bytes, begin.bytes),
      forwardTileBytes: forward.bytes,
      endBytes: end.bytes,
      tileBytes: bytesOf([weight]),
      backwardTileBytes: backward.bytes,
      prepareReverseBytes: back.bytes,
    };
    return {
      outputShape: [],
      outputBytes: 0,
      rowBytes: 0,
      forwardBytes: 0,
      reverseBytes: 0,
      tiled,
    };
  }

  #trainable(names: readonly string[]): string[] {
    return names.filter((name) => this.#layout.params.get(name)?.spec.trainable !== false);
  }

  #params(names: readonly string[]): Params {
    return Object.fromEntries(
      names.map((name) => {
        const address = this.#layout.params.get(name);
        assert(address !== undefined, 'the parameter is known', { name });
        return [name, this.#load(address.spec.shape)];
      }),
    );
  }

  /** Zeros, stored as the engine's loader stores a parameter. */
  #load(shape: readonly number[]): Tensor {
    const { ledger, capabilities } = this.#device;
    const { liveBytes } = ledger;
    const { bf16Operands } = capabilities;
    let tensor: Tensor;
    if (keepsBfloat16(shape, this.#dtype, bf16Operands)) {
      const upload = this.#device.beginUpload(shape, 'a probed parameter', { keepBfloat16: true });
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

  #field(block: string, name: string): Tensor {
    const field: HostTensor | undefined = this.#aux.fields[name];
    if (field === undefined) {
      throw new SpillwayError(
        'DATA_INVALID',
        `block ${block} reads the field ${name}, which the example batch lacks`,
        { fields: Object.keys(this.#aux.fields) },
      );
    }
    const type = field.data instanceof Int32Array ? 'int32' : 'float32';
    return this.#keep(
      this.#device.run(() => tf.tensor(field.data.slice(), [...field.shape], type)),
    );
  }

  #zeros(shape: readonly number[]): Tensor {
    return this.#keep(this.#filled(shape));
  }

  /** Not tf.zeros, which makes an array of JavaScript's first, however large. */
  #filled(shape: readonly number[]): Tensor {
    return this.#device.run(() => tf.fill([...shape], 0));
  }

  #keep(tensor: Tensor): Tensor {
    this.#made.push(tensor);
    return tensor;
  }

  /** Runs `body` and measures its peak above what is live; keeps its tensors until the end. */
  #peak(body: () => Tensor[]): { tensors: Tensor[]; bytes: number } {
    const { ledger } = this.#device;
    const before = ledger.liveBytes;
    ledger.resetPeak();
    const tensors = body();
    this.#made.push(...tensors);
    return { tensors, bytes: ledger.peakBytes - before };
  }
}

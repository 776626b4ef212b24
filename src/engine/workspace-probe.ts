/**
 * @file Measures what a block needs on the device by running it once on zeros, unbudgeted.
 *
 * The step's own functions run on the largest shapes; the ledger's peak gives each phase's
 * workspace exactly, for built-in and users' blocks alike. Blocks of one kind, input shape and
 * set of trainable parameters are probed once. The cost is one forward and reverse pass per kind,
 * which is next to nothing on the meta device.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { ComputeDtype } from '../../core/types.js';
import type { Device } from '../../tiers/device/device.js';
import type { Block, BlockAux, MicroBatch, TiledBlock } from '../model/block.js';
import type { BlockProfile, TiledProfile } from '../plan/block-profile.js';
import type { ParameterLayout } from '../plan/parameter-layout.js';
import { tensorBytes } from '../plan/tensor-bytes.js';
import {
  forwardDense,
  forwardRows,
  prepareTiled,
  reverse,
  runTiled,
  seedOf,
} from './block-compute.js';
import { ProbeBench } from './probe-bench.js';

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
      profile = new Probe(
        new ProbeBench(device, layout, dtype),
        block,
        index,
        inputShape,
        example,
      ).run();
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
  readonly #bench: ProbeBench;
  readonly #block: Block;
  readonly #inputShape: readonly number[] | undefined;
  readonly #aux: BlockAux;

  constructor(
    bench: ProbeBench,
    block: Block,
    index: number,
    inputShape: readonly number[] | undefined,
    example: MicroBatch,
  ) {
    this.#bench = bench;
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
    const { value, widenedBytes } = this.#bench.measure(() => this.#profile());
    return { ...value, widenedBytes };
  }

  #profile(): Omit<BlockProfile, 'widenedBytes'> {
    const block = this.#block;
    const fields = this.#bench.fields(block, this.#aux);
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
      const address = this.#bench.address(gather.param);
      const columns = address.length / (address.spec.shape[0] ?? 1);
      return this.#bench.zeros([gather.indices(aux.fields).length, columns]);
    });
    const output = this.#bench.peak(() => [forwardRows(this.#bench.device, block, rows, aux)]);
    const dy = this.#bench.zeros(output.tensors[0]?.shape ?? []);
    const back = this.#bench.peak(() => this.#bench.device.run(() => block.backward(dy, aux)));
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
    const params = this.#bench.params(block.uses);
    const input = this.#inputShape === undefined ? undefined : this.#bench.zeros(this.#inputShape);
    const inputs = input === undefined ? [] : [input];
    const output = this.#bench.peak(() => [
      forwardDense(this.#bench.device, block, params, inputs, aux),
    ]);
    const shape = output.tensors[0]?.shape ?? [];
    const names = this.#trainable(block.uses);
    const back = this.#bench.peak(() => {
      const { dInput, dParams } = reverse(
        this.#bench.device,
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
    const { device } = this.#bench;
    const address = this.#bench.address(block.tiledParam);
    assert(this.#inputShape !== undefined, 'the input is known');
    const rows = address.spec.shape[0] ?? 1;
    const rowCount = Math.min(block.tileRows, rows);
    const whole = block.uses.filter((name) => name !== block.tiledParam);
    const params = this.#bench.params(whole);
    const input = this.#bench.zeros(this.#inputShape);
    const weight = this.#bench.zeros([rowCount, address.length / rows]);
    const tile = { weight, index: 0, firstRow: 0, rowCount };
    const prepare = this.#bench.peak(() => prepareTiled(device, block, params, input, aux));
    const prepared = prepare.tensors;
    const begin = this.#bench.peak(() => runTiled(device, () => block.begin(prepared, aux)));
    const forward = this.#bench.peak(() =>
      runTiled(device, () => block.forwardTile(tile, prepared, begin.tensors, aux)),
    );
    let saved: Tensor[] = [];
    let lossBytes = 0;
    const end = this.#bench.peak(() => {
      const result = runTiled(device, () => block.end(prepared, forward.tensors, aux));
      saved = result.saved;
      lossBytes = result.losses.size * 4;
      return [result.losses, ...result.saved];
    });
    const backward = this.#bench.peak(() => {
      const result = runTiled(device, () => block.backwardTile(tile, prepared, saved, aux));
      return [result.dTile, ...result.dPrepared];
    });
    const back = this.#bench.peak(() => {
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
      lossBytes,
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
    return names.filter((name) => this.#bench.address(name).spec.trainable !== false);
  }
}

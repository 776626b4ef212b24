/**
 * @file The tiled last block: losses and gradients over a matrix read in row tiles.
 *
 * One pass serves a wave of micro-batches, so that each tile is loaded once forward and once
 * backward per wave. Sums keep the canonical order whatever the wave: in the first wave the
 * micro-batches' tile gradients are added on the device, later waves add one by one to the home.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import type { BlockAux, Params, TiledBlock } from '../model/block.js';
import { addTensors, prepareTiled, reverse, runTiled } from './block-compute.js';
import type { GradientWriter } from './gradient-writer.js';
import type { ParameterLoader } from './parameter-loader.js';

/** One micro-batch of a wave. */
export interface HeadInput {
  readonly aux: BlockAux;
  /** The block's input; called twice (prepare, and its reverse pass). */
  input(): Promise<{ tensor: Tensor; release(): void }>;
  /** Receives the gradient of the input and owns it. */
  accept(dInput: Tensor): Promise<void>;
  /** Receives the losses [N] before they are freed. */
  losses(losses: Tensor): Promise<void>;
}

interface Running {
  readonly source: HeadInput;
  prepared: Tensor[];
  carry: Tensor[];
  saved: Tensor[];
  dPrepared: Tensor[];
}

function disposeExcept(old: readonly Tensor[], kept: readonly Tensor[]): void {
  for (const tensor of new Set(old)) if (!kept.includes(tensor)) tensor.dispose();
}

export class HeadPass {
  readonly #tiers: TierManager;
  readonly #loader: ParameterLoader;
  readonly #block: TiledBlock;
  readonly #blockIndex: number;

  constructor(tiers: TierManager, loader: ParameterLoader, block: TiledBlock, blockIndex: number) {
    this.#tiers = tiers;
    this.#loader = loader;
    this.#block = block;
    this.#blockIndex = blockIndex;
  }

  /**
   * Losses of a wave; with a writer, gradients too.
   *
   * @param firstWave whether the wave starts the step's sums
   */
  async run(
    wave: readonly HeadInput[],
    writer: GradientWriter | undefined,
    firstWave: boolean,
  ): Promise<void> {
    const whole = this.#block.uses.filter((name) => name !== this.#block.tiledParam);
    const params = await this.#loader.loadParams(whole);
    const running: Running[] = [];
    try {
      await this.#prepare(wave, params, running);
      await this.#forward(running);
      if (writer !== undefined) {
        await this.#backward(running, writer, firstWave);
        await this.#reversePrepare(running, params, writer, firstWave);
      }
    } finally {
      for (const tensor of new Set([
        ...Object.values(params),
        ...running.flatMap((one) => [
          ...one.prepared,
          ...one.carry,
          ...one.saved,
          ...one.dPrepared,
        ]),
      ])) {
        tensor.dispose();
      }
    }
  }

  async #prepare(wave: readonly HeadInput[], params: Params, running: Running[]): Promise<void> {
    const { device } = this.#tiers;
    for (const source of wave) {
      const held = await source.input();
      const one: Running = { source, prepared: [], carry: [], saved: [], dPrepared: [] };
      running.push(one);
      try {
        one.prepared = prepareTiled(device, this.#block, params, held.tensor, source.aux);
      } finally {
        held.release();
      }
      one.carry = runTiled(device, () => this.#block.begin(one.prepared, source.aux));
    }
  }

  async #forward(running: readonly Running[]): Promise<void> {
    const { device } = this.#tiers;
    const block = this.#block;
    await this.#loader.eachTile(block, async (tile) => {
      for (const one of running) {
        const next = runTiled(device, () =>
          block.forwardTile(tile, one.prepared, one.carry, one.source.aux),
        );
        disposeExcept(one.carry, next);
        one.carry = next;
      }
      await device.synchronize();
    });
    for (const one of running) {
      const { losses, saved } = runTiled(device, () =>
        block.end(one.prepared, one.carry, one.source.aux),
      );
      disposeExcept(one.carry, [...saved, losses]);
      one.carry = [];
      one.saved = saved;
      try {
        await one.source.losses(losses);
      } finally {
        if (!saved.includes(losses)) losses.dispose();
      }
    }
  }

  async #backward(
    running: readonly Running[],
    writer: GradientWriter,
    firstWave: boolean,
  ): Promise<void> {
    const { device } = this.#tiers;
    const { tiledParam } = this.#block;
    const trains = writer.isTrainable(tiledParam);
    await this.#loader.eachTile(this.#block, async (tile) => {
      let sum: Tensor | undefined;
      try {
        for (const one of running) {
          const { dTile, dPrepared } = runTiled(device, () =>
            this.#block.backwardTile(tile, one.prepared, one.saved, one.source.aux),
          );
          one.dPrepared = dPrepared.map((added, index) => {
            const before = one.dPrepared[index];
            return before === undefined ? added : addTensors(device, before, added);
          });
          if (!trains) {
            dTile.dispose();
          } else if (firstWave) {
            sum = sum === undefined ? dTile : addTensors(device, sum, dTile);
          } else {
            sum = dTile;
            await writer.writeTile(this.#blockIndex, tiledParam, tile.firstRow, sum, false);
            sum.dispose();
            sum = undefined;
          }
        }
        if (sum !== undefined) {
          await writer.writeTile(this.#blockIndex, tiledParam, tile.firstRow, sum, true);
        }
      } finally {
        sum?.dispose();
      }
    });
    for (const one of running) {
      disposeExcept([...one.prepared, ...one.saved], []);
      one.prepared = [];
      one.saved = [];
    }
  }

  async #reversePrepare(
    running: readonly Running[],
    params: Params,
    writer: GradientWriter,
    firstWave: boolean,
  ): Promise<void> {
    const { device } = this.#tiers;
    const block = this.#block;
    const trainable = writer.trainableOf(block);
    let sums: Record<string, Tensor> = {};
    try {
      for (const one of running) {
        const { aux } = one.source;
        const held = await one.source.input();
        const dys = one.dPrepared;
        one.dPrepared = [];
        let gradients;
        try {
          gradients = reverse(
            device,
            () => block.prepare(params, [held.tensor], aux),
            params,
            trainable,
            held.tensor,
            () => dys,
          );
        } finally {
          held.release();
        }
        sums = mergeSums(this.#tiers, sums, gradients.dParams);
        if (gradients.dInput !== undefined) await one.source.accept(gradients.dInput);
        if (!firstWave) {
          await writer.writeDense(this.#blockIndex, sums, false);
          for (const tensor of Object.values(sums)) tensor.dispose();
          sums = {};
        }
      }
      if (firstWave) await writer.writeDense(this.#blockIndex, sums, true);
    } finally {
      for (const tensor of Object.values(sums)) tensor.dispose();
    }
  }
}

/** Adds gradients by name in float32; consumes both. */
export function mergeSums(
  tiers: TierManager,
  sums: Record<string, Tensor>,
  added: Readonly<Record<string, Tensor>>,
): Record<string, Tensor> {
  const merged: Record<string, Tensor> = {};
  for (const [name, tensor] of Object.entries(added)) {
    const before = sums[name];
    merged[name] = before === undefined ? tensor : addTensors(tiers.device, before, tensor);
  }
  for (const name of Object.keys(sums)) assert(name in merged, 'every gradient is added', { name });
  return merged;
}

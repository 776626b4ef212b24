/**
 * @file Carries out the transfers of a step plan: between the device, host memory and NVMe.
 */
import { assert } from '../../core/errors.js';
import type { DeviceRegion } from '../../tiers/device/device.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import type { TierManager, Turns } from '../../tiers/tier-manager.js';
import type { Block, BlockAux, RowBlock, SequencePlace, TiledBlock } from '../model/block.js';
import type { PackedParams } from '../plan/packed-params.js';
import type { MicroBatchOrder } from '../plan/placement.js';
import type { ParameterLayout } from '../plan/parameter-layout.js';
import type { Transfer } from '../plan/step-plan.js';
import type { ActivationStore } from './activation-store.js';
import type { ComputeRunner } from './compute-runner.js';
import type { GradientWriter } from './gradient-writer.js';
import type { KeyValueCache } from './key-value-cache.js';
import type { LossSum } from './loss-sum.js';
import type { ParameterLoader } from './parameter-loader.js';
import { rowBytes } from './row-bytes.js';
import type { RowGradients } from './row-gradients.js';

/** What transfers work with; the engine owns all of it. */
export interface TransferParts {
  readonly blocks: readonly Block[];
  readonly layout: ParameterLayout;
  readonly packed: readonly PackedParams[];
  readonly tiers: TierManager;
  readonly region: DeviceRegion;
  readonly loader: ParameterLoader;
  readonly compute: ComputeRunner;
  /** Undefined where nothing is trained. */
  readonly training?: TrainingParts;
  /** Undefined where no sequence is continued. */
  readonly sequence?: SequenceParts;
}

/** What transfers of a sequence's continuation work with besides. */
export interface SequenceParts {
  readonly cache: KeyValueCache;
  /** V float32: those of one position. */
  readonly logits: MemoryLease;
}

/** What transfers of training steps work with besides. */
export interface TrainingParts {
  readonly order: MicroBatchOrder;
  readonly writer: GradientWriter;
  readonly activations: ActivationStore;
  readonly rows: ReadonlyMap<string, RowGradients>;
}

/** What belongs to one step, to an evaluation or to the continuation of a sequence. */
export interface StepContext {
  /** One-based number of the optimizer step; of an evaluation, the one before it. */
  readonly step: number;
  readonly isEvaluation?: boolean;
  readonly aux: readonly BlockAux[];
  /** Where the losses of a micro-batch are added. */
  readonly losses: (microBatch: number) => LossSum;
  /** Shape of the input of a block for a micro-batch. */
  readonly inputShape: (block: number, microBatch: number) => readonly number[];
  /** Of the next tokens of a sequence. */
  readonly place?: SequencePlace;
}

export class StepTransfers {
  readonly #parts: TransferParts;

  constructor(parts: TransferParts) {
    this.#parts = parts;
  }

  /** Runs one transfer to its end. @throws what moving bytes throws; NON_FINITE for losses */
  async run(action: Transfer, step: StepContext, turns: Turns): Promise<void> {
    const { compute, tiers, blocks } = this.#parts;
    switch (action.kind) {
      case 'fetch-params':
      case 'fetch-rows':
      case 'fetch-tile':
      case 'fetch-activation':
      case 'fetch-cache':
        return this.#fetch(action, step, turns);
      case 'spill-activation': {
        const tensor = compute.activation(action.operation);
        const slot = this.#slotOf(action.microBatch);
        return this.#training.activations.spill(action.block, slot, tensor, turns);
      }
      case 'write-gradients': {
        const gradients = compute.gradients(action.operation);
        return this.#training.writer.writeDense(action.block, gradients, action.first, turns);
      }
      case 'write-tile': {
        const block = this.#tiled();
        const gradient = compute.tileGradient(action.operation);
        const firstRow = action.tile * block.tileRows;
        const index = blocks.length - 1;
        const { writer } = this.#training;
        return writer.writeTile(index, block.tiledParam, firstRow, gradient, action.first, turns);
      }
      case 'add-rows':
        return this.#addRows(action, step, turns);
      case 'write-rows': {
        const { rows, writer } = this.#training;
        const sum = rows.get(action.param);
        assert(sum !== undefined, 'a trained table has row gradients');
        return writer.writeRows(action.param, sum, turns);
      }
      case 'merge-uses':
        return this.#training.writer.mergeUses(action.param, turns);
      case 'losses':
        return step.losses(action.microBatch).add(tiers, compute.losses(action.operation), turns);
      case 'write-cache': {
        const { cache } = this.#sequence;
        return cache.write(action.block, firstOf(step), compute.added(action.operation), turns);
      }
      case 'write-logits': {
        const { buffer, byteOffset } = this.#sequence.logits.bytes;
        const logits = compute.logits(action.operation);
        const start = byteOffset + action.tile * this.#tiled().tileRows * 4;
        return tiers.download(logits, 0, new Float32Array(buffer, start, logits.size), turns);
      }
      default:
        return action satisfies never;
    }
  }

  async #fetch(
    action: Extract<Transfer, { offset: number }>,
    step: StepContext,
    turns: Turns,
  ): Promise<void> {
    const { loader, region, packed, layout } = this.#parts;
    switch (action.kind) {
      case 'fetch-params':
        return loader.fetchParams(packed[action.block]!, region, action.offset, turns);
      case 'fetch-rows': {
        let offset = action.offset;
        for (const gather of this.#rowBlock().gathers) {
          const { param } = gather;
          const wanted = gather.indices(step.aux[action.microBatch]!.fields, step.place?.first);
          const { isSparse } = action;
          await loader.fetchRows(param, wanted, region, offset, { turns, isSparse });
          offset += rowBytes(wanted.length, layout.params.get(param)!.spec.shape[1]!);
        }
        return;
      }
      case 'fetch-tile': {
        const { tiledParam, tileRows } = this.#tiled();
        const [rows, columns] = layout.params.get(tiledParam)!.spec.shape as [number, number];
        const firstRow = action.tile * tileRows;
        const count = Math.min(tileRows, rows - firstRow) * columns;
        const start = firstRow * columns;
        return loader.fetchRange(tiledParam, start, count, region, action.offset, turns);
      }
      case 'fetch-activation': {
        const { block, microBatch, offset } = action;
        const shape = step.inputShape(block, microBatch);
        const length = shape.reduce((product, size) => product * size, 1);
        const slot = this.#slotOf(microBatch);
        return this.#training.activations.fetch(block, slot, length, region, offset, turns);
      }
      case 'fetch-cache':
        return this.#sequence.cache.fetch(
          action.block,
          firstOf(step),
          region,
          action.offset,
          turns,
        );
      default:
        return action satisfies never;
    }
  }

  async #addRows(
    { microBatch, operation }: Extract<Transfer, { kind: 'add-rows' }>,
    step: StepContext,
    turns: Turns,
  ): Promise<void> {
    const { compute, tiers } = this.#parts;
    const { rows } = this.#training;
    const gradients = compute.gradients(operation);
    for (const gather of this.#rowBlock().gathers) {
      const sum = rows.get(gather.param);
      const gradient = gradients[gather.param];
      if (sum === undefined || gradient === undefined) continue;
      await sum.addMicroBatch(gather.indices(step.aux[microBatch]!.fields), (offset, target) =>
        tiers.download(gradient, offset, target, turns),
      );
    }
  }

  /** Place of a micro-batch's activations: its number in vertical order, the only one otherwise. */
  #slotOf(microBatch: number): number {
    return this.#training.order === 'vertical' ? microBatch : 0;
  }

  get #training(): TrainingParts {
    const { training } = this.#parts;
    assert(training !== undefined, 'only training steps have such transfers');
    return training;
  }

  get #sequence(): SequenceParts {
    const { sequence } = this.#parts;
    assert(sequence !== undefined, 'only continuations have such transfers');
    return sequence;
  }

  #rowBlock(): RowBlock {
    const block = this.#parts.blocks[0];
    assert(block?.kind === 'row', 'rows belong to a row block');
    return block;
  }

  #tiled(): TiledBlock {
    const block = this.#parts.blocks.at(-1);
    assert(block?.kind === 'tiled', 'tiles belong to a tiled block');
    return block;
  }
}

/** Tokens before those that come. */
function firstOf({ place }: StepContext): number {
  assert(place !== undefined, 'a continuation has its place');
  return place.first;
}

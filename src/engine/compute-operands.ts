/**
 * @file Where compute operations find parameters, tiles, activations and caches: views of the region,
 * whose fills and reads the plan orders, what is at home on the device, and what earlier operations
 * left.
 *
 * Owns nothing.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { ParamName, Params, Tile, TiledBlock } from '../model/block.js';
import type { Source } from '../plan/step-plan.js';
import type { ComputeOutputs } from './compute-outputs.js';
import type { ComputeParts } from './compute-parts.js';

export class ComputeOperands {
  readonly #parts: ComputeParts;
  readonly #outputs: ComputeOutputs;

  constructor(parts: ComputeParts, outputs: ComputeOutputs) {
    this.#parts = parts;
    this.#outputs = outputs;
  }

  /** Runs `body` with a block's whole parameters as views; disposes these. */
  withParams<T>(index: number, offset: number, body: (params: Params) => T): T {
    const { region, packed, alias } = this.#parts;
    const { params, aliased } = packed[index]!;
    const views: Record<ParamName, Tensor> = {};
    try {
      for (const { address, byteOffset, kept } of params) {
        const { name, shape } = address.spec;
        views[name] = region.view(offset + byteOffset, shape, kept);
      }
      for (const address of aliased) views[address.spec.name] = alias(address);
      return body(views);
    } finally {
      for (const view of Object.values(views)) view.dispose();
    }
  }

  /** Runs `body` with a source's tensor, which stays where it is. */
  withSource<T>(
    source: Source | undefined,
    block: number,
    microBatch: number,
    body: (tensor: Tensor | undefined) => T,
  ): T {
    if (source === undefined) return body(undefined);
    if (source.kind === 'output') return body(this.#outputs.part(source.operation, 'activation'));
    const view = this.#view(source.offset, block, microBatch);
    try {
      return body(view);
    } finally {
      view.dispose();
    }
  }

  /** The tensor of a source, for the caller to own. */
  takeSource(source: Source, block: number, microBatch: number): Tensor {
    return source.kind === 'output'
      ? this.#outputs.take(source.operation, 'activation')
      : this.#view(source.offset, block, microBatch);
  }

  /** Runs `body` with a tile of the head's matrix as a view. */
  withTile(
    block: TiledBlock,
    index: number,
    offset: number | undefined,
    body: (tile: Tile) => void,
  ): void {
    const { region, layout, alias } = this.#parts;
    const address = layout.params.get(block.tiledParam)!;
    const [rows, columns] = address.spec.shape as [number, number];
    const firstRow = index * block.tileRows;
    const rowCount = Math.min(block.tileRows, rows - firstRow);
    const weight =
      offset === undefined
        ? alias(address, { first: firstRow, count: rowCount })
        : region.view(offset, [rowCount, columns], 'float32');
    try {
      body({ weight, index, firstRow, rowCount });
    } finally {
      weight.dispose();
    }
  }

  /** Runs `body` with what a block keeps of the first `length` tokens of a sequence. */
  withCached<T>(
    block: number,
    length: number,
    offset: number | undefined,
    body: (cached: readonly Tensor[]) => T,
  ): T {
    const { cache, region } = this.#parts;
    assert(cache !== undefined, 'sequences have a cache');
    const views = cache.views(block, length, region, offset);
    try {
      return body(views);
    } finally {
      for (const view of views) view.dispose();
    }
  }

  #view(offset: number, block: number, microBatch: number): Tensor {
    return this.#parts.region.view(offset, this.#parts.inputShape(block, microBatch), 'float32');
  }
}

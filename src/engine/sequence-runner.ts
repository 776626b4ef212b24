/**
 * @file Continues one sequence: tokens in, logits of the token that follows out.
 *
 * Many tokens at once pass in parts of at most `PART_TOKENS`; blocks come from their tiers once per
 * part. The logits of one position are the only [V] that exists, in host memory, tile after tile.
 * What a block adds to the cache, and a tile's logits, are downloaded while the next block or tile is
 * on its way to the device; one such download is outstanding at most.
 * Owns neither cache nor lease.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import type { BlockAux, DenseBlock, RowBlock, TiledBlock } from '../model/block.js';
import { extendDense, forwardRows, lastToken, prepareTiled, tileLogits } from './block-compute.js';
import type { InferenceParts } from './forward-runner.js';
import type { KeyValueCache } from './key-value-cache.js';

/** Most tokens of one pass: weights are worth loading for so many, and temporaries stay small. */
export const PART_TOKENS = 256;

export class SequenceRunner {
  readonly #parts: InferenceParts;
  readonly #cache: KeyValueCache;
  readonly #logits: MemoryLease;
  #length = 0;
  /** The download behind. */
  #behind: Promise<void> = Promise.resolve();

  /** @param logits a lease of V float32 */
  constructor(parts: InferenceParts, cache: KeyValueCache, logits: MemoryLease) {
    this.#parts = parts;
    this.#cache = cache;
    this.#logits = logits;
  }

  /** Tokens of the sequence so far. */
  get length(): number {
    return this.#length;
  }

  get limit(): number {
    return this.#cache.limit;
  }

  /** Starts another sequence. */
  reset(): void {
    this.#length = 0;
  }

  /**
   * Appends `ids`, at least one, and computes the logits of what follows.
   *
   * @returns [V], valid until the next call
   * @throws TOKEN_OUT_OF_RANGE; anything that moves or computes may throw
   */
  async append(ids: readonly number[]): Promise<Float32Array> {
    assert(ids.length > 0 && this.#length + ids.length <= this.limit, 'the tokens have room');
    for (let start = 0; start < ids.length; start += PART_TOKENS) {
      const part = ids.slice(start, start + PART_TOKENS);
      const hidden = await this.#pass(part);
      await this.#behind;
      this.#length += part.length;
      if (start + part.length < ids.length) hidden.dispose();
      else await this.#head(hidden);
    }
    await this.#behind;
    const { buffer, byteOffset, byteLength } = this.#logits.bytes;
    return new Float32Array(buffer, byteOffset, byteLength / 4);
  }

  /** All blocks but the last over the next tokens: [1, M, C]. */
  async #pass(ids: readonly number[]): Promise<Tensor> {
    const fields = { input_ids: { data: Int32Array.from(ids), shape: [1, ids.length] } };
    let x: Tensor | undefined;
    try {
      for (const [index, block] of this.#parts.blocks.slice(0, -1).entries()) {
        const input = x;
        if (block.kind === 'row') x = await this.#rows(block, this.#aux(fields, index));
        else if (block.kind === 'dense') x = await this.#extend(block, index, input);
        input?.dispose();
      }
    } catch (error) {
      x?.dispose();
      throw error;
    }
    assert(x !== undefined, 'a block stands before the head');
    return x;
  }

  #rows(block: RowBlock, aux: BlockAux): Promise<Tensor> {
    const { loader, tiers } = this.#parts;
    return loader.withRows(block.gathers, aux.fields, this.#length, async (rows) =>
      forwardRows(tiers.device, block, rows, aux),
    );
  }

  async #extend(block: DenseBlock, index: number, input: Tensor | undefined): Promise<Tensor> {
    const { loader, tiers } = this.#parts;
    const place = { first: this.#length, limit: this.limit };
    const inputs = input === undefined ? [] : [input];
    const cached = await this.#cache.read(index, this.#length);
    const { output, added } = await loader
      .withParams(block.uses, async (params) =>
        extendDense(tiers.device, block, params, inputs, cached, place),
      )
      .finally(() => cached.forEach((tensor) => tensor.dispose()));
    try {
      await this.#leaveBehind(added, this.#cache.write(index, place.first, added));
    } catch (error) {
      output.dispose();
      throw error;
    }
    return output;
  }

  /** Lets `download` of `tensors` run behind, once the one before is done; frees them then. */
  async #leaveBehind(tensors: readonly Tensor[], download: Promise<void>): Promise<void> {
    const before = this.#behind;
    const done = download.finally(() => tensors.forEach((tensor) => tensor.dispose()));
    done.catch(() => undefined); // Reported to whoever waits for it.
    this.#behind = done;
    await before;
  }

  /** Logits of the last of `hidden`'s tokens, into host memory. Consumes `hidden`. */
  async #head(hidden: Tensor): Promise<void> {
    const { blocks, loader, tiers } = this.#parts;
    const block = blocks.at(-1);
    assert(block?.kind === 'tiled', 'the last block is tiled');
    const last = lastToken(tiers.device, hidden);
    hidden.dispose();
    const whole = block.uses.filter((name) => name !== block.tiledParam);
    const fields = { input_ids: { data: new Int32Array(1), shape: [1, 1] } };
    const aux = this.#aux(fields, blocks.length - 1);
    await loader
      .withParams(whole, async (params) => {
        const prepared = prepareTiled(tiers.device, block, params, last, aux);
        await this.#tiles(block, prepared).finally(() =>
          prepared.forEach((tensor) => tensor.dispose()),
        );
      })
      .finally(() => last.dispose());
  }

  async #tiles(block: TiledBlock, prepared: readonly Tensor[]): Promise<void> {
    const { loader, tiers } = this.#parts;
    const { buffer, byteOffset } = this.#logits.bytes;
    await loader.eachTile(block, async (tile) => {
      const logits = tileLogits(tiers.device, block, tile, prepared);
      const target = new Float32Array(buffer, byteOffset + tile.firstRow * 4, tile.rowCount);
      await this.#leaveBehind([logits], tiers.download(logits, 0, target));
    });
  }

  #aux(fields: BlockAux['fields'], block: number): BlockAux {
    const { seed } = this.#parts;
    return { fields, tensors: {}, lossScale: 1, seed, step: 0, microBatch: 0, block };
  }
}

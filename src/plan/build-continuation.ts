/**
 * @file Writes down how the next tokens of one sequence pass through all blocks, and the logits of
 * what follows the last of them.
 *
 * Parameters, and what blocks keep of earlier tokens, are fetched ahead into the region's slots. What
 * a block adds to the cache, and a tile's logits, are copied away beside the operation that follows.
 *
 * Pure functions.
 */
import { assert } from '../../core/errors.js';
import type { TiledBlock } from '../model/block.js';
import { ActivationSlots } from './activation-slots.js';
import { ForwardPass } from './forward-pass.js';
import { OperationList } from './operation-list.js';
import { ParameterSlots } from './parameter-slots.js';
import { PassedActivations } from './passed-activations.js';
import type { PassInput } from './step-input.js';
import type { StepPlan } from './step-plan.js';
import { StepSizes } from './step-sizes.js';

/** What a continuation is made from; its tokens are the only micro-batch. */
export interface ContinuationInput extends PassInput {
  /** Elements per token that each block keeps, by cached tensor. */
  readonly cacheWidths: readonly (readonly number[])[];
  readonly cacheTiers: readonly ('device' | 'host')[];
  /** Tokens that come. */
  readonly count: number;
  /** Whether there are earlier ones. */
  readonly continues: boolean;
  readonly wantsLogits: boolean;
}

/** The operations of a continuation, but for what `withSparseRows` and `withCache` add. */
export function buildContinuation(input: ContinuationInput): StepPlan {
  return new ContinuationBuilder(input).build();
}

/** The plan with what fetching the cache of `first` earlier tokens moves. */
export function withCache(
  plan: StepPlan,
  { cacheWidths }: Pick<ContinuationInput, 'cacheWidths'>,
  first: number,
): StepPlan {
  const operations = plan.operations.map((operation) => {
    const { action } = operation;
    if (action.kind !== 'fetch-cache') return operation;
    const elements = cacheWidths[action.block]!.reduce((sum, width) => sum + first * width, 0);
    return { ...operation, bytes: { upload: elements * 4 } };
  });
  return { ...plan, operations };
}

/** The only micro-batch. */
const TOKENS = 0;

/** Operations that may start while the cache is written behind the one before. */
const LAG = 1;

/** Operations on one token are short: several are launched, so that none waits for a thread to wake. */
const TOKEN_LAUNCH_AHEAD = 8;

/** Tiles whose logits may be on their way to the host beside the next one's: they are few bytes. */
export const LOGITS_LAG = TOKEN_LAUNCH_AHEAD;

class ContinuationBuilder {
  readonly #input: ContinuationInput;
  readonly #ops: OperationList;
  readonly #sizes: StepSizes;
  readonly #parameters: ParameterSlots;
  readonly #slots: ActivationSlots;
  readonly #activations: PassedActivations;

  constructor(input: ContinuationInput) {
    this.#input = input;
    this.#ops = new OperationList(input, { spillLag: LAG });
    this.#sizes = new StepSizes(input);
    this.#parameters = new ParameterSlots(input, this.#ops, this.#sizes, 'forward');
    this.#slots = new ActivationSlots(input.region, this.#ops);
    this.#activations = new PassedActivations(this.#ops);
  }

  build(): StepPlan {
    const { blocks, wantsLogits } = this.#input;
    for (const [index, block] of blocks.slice(0, -1).entries()) {
      if (block.kind === 'row') this.#rows();
      else this.#extend(index);
    }
    const head = blocks.at(-1)!;
    assert(head.kind === 'tiled', 'the last block is tiled');
    if (wantsLogits) this.#logits(head, blocks.length - 1);
    const { operations } = this.#ops;
    const paramLoadCount = this.#parameters.loadCount;
    return { operations, paramLoadCount, launchAhead: TOKEN_LAUNCH_AHEAD };
  }

  #rows(): void {
    const parts = {
      ops: this.#ops,
      sizes: this.#sizes,
      parameters: this.#parameters,
      slots: this.#slots,
      activations: this.#activations,
      isSparse: true,
    };
    new ForwardPass(this.#input, parts).rows(TOKENS);
  }

  #extend(block: number): void {
    const params = this.#parameters.params(block);
    const input = block === 0 ? undefined : this.#activations.activation(block, TOKENS);
    const cached = this.#cache(block);
    const id = this.#ops.compute(
      {
        kind: 'extend',
        block,
        microBatch: TOKENS,
        offset: params.offset,
        input: input?.source,
        cacheOffset: cached?.offset,
      },
      [...params.after, ...(cached?.after ?? [])],
      [...params.claims, ...(cached?.claims ?? [])],
      { fences: params.fences },
    );
    if (params.advance) this.#parameters.advanceAfter(block, TOKENS);
    if (input !== undefined) this.#activations.used(block, TOKENS, id);
    this.#activations.put(block + 1, TOKENS, id);
    const { cacheWidths, cacheTiers, count } = this.#input;
    const widths = cacheWidths[block]!;
    if (widths.length === 0) return;
    const elements = widths.reduce((sum, width) => sum + count * width, 0);
    // Within the device no link is crossed.
    const moved = cacheTiers[block] === 'host' ? { download: elements * 4 } : {};
    const action = { kind: 'write-cache', block, operation: id } as const;
    const write = this.#ops.add('download', action, moved, [id]);
    this.#ops.freeLater({ operation: id, part: 'added' }, write);
  }

  /** Fetches what a block keeps on the host of earlier tokens. */
  #cache(block: number) {
    const { cacheWidths, cacheTiers, continues } = this.#input;
    const isAway = cacheTiers[block] === 'host' && cacheWidths[block]!.length > 0;
    if (!isAway || !continues) return undefined;
    const { offset, claim, after } = this.#slots.claim();
    const action = { kind: 'fetch-cache', block, offset } as const;
    const fetched = this.#ops.fetch(action, 0, 0, after, claim);
    return { offset, after: [fetched], claims: [claim] };
  }

  #logits(head: TiledBlock, index: number): void {
    const params = this.#parameters.headParams(index);
    const input = this.#activations.activation(index, TOKENS);
    const { offset } = params;
    const prepared = this.#ops.compute(
      { kind: 'prepare-last', microBatch: TOKENS, offset, input: input.source },
      params.after,
      params.claims,
      { fences: params.fences },
    );
    this.#activations.used(index, TOKENS, prepared);
    const tiles = this.#sizes.tileCount(head);
    const rows = this.#sizes.rowCount(head);
    for (let tile = 0; tile < tiles; tile += 1) {
      const fetched = this.#parameters.tile(head, tile);
      const operation = this.#ops.compute(
        { kind: 'logits-tile', tile, microBatch: TOKENS, offset: fetched.offset },
        fetched.after,
        fetched.claims,
        { fences: fetched.fences },
      );
      const count = Math.min(head.tileRows, rows - tile * head.tileRows);
      const action = { kind: 'write-logits', tile, operation } as const;
      const write = this.#ops.add('download', action, { download: count * 4 }, [operation]);
      this.#ops.freeLater({ operation, part: 'logits' }, write, LOGITS_LAG);
    }
  }
}

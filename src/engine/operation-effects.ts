/**
 * @file What compute operations do to device memory, remembered: equal operations rise as high and
 * leave as much, so that a plan runs each kind once.
 *
 * Equal are operations of one kind on blocks of one kind, over micro-batches of equal shapes, whose
 * inputs come from the same kinds of places. One that brings batch fields to the device, and the
 * first and last tile of the head, always run. So does what leaves, or takes, memory that is shared,
 * as that of a reshaped tensor is: nothing that is allocated anew could stand in for it.
 */
import type { DeviceLedger } from '../../tiers/device/device.js';
import type { Block, MicroBatch } from '../model/block.js';
import type { PackedParams } from '../plan/packed-params.js';
import type { ParameterLayout } from '../plan/parameter-layout.js';
import type { Compute, Operation, OperationId, Output, Source } from '../plan/step-plan.js';
import { tensorBytes } from '../plan/tensor-bytes.js';
import type { LeftShapes } from './compute-outputs.js';
import type { ComputeRunner } from './compute-runner.js';
import { shapeKey } from './micro-batch-shapes.js';

interface Effect {
  /** Highest bytes above what was live when it began. */
  readonly rise: number;
  readonly left: LeftShapes;
  /** The block that it ran on, whose parameters' names `left` bears. */
  readonly block: Block;
}

/** What the effects are of. */
export interface EffectParts {
  readonly ledger: DeviceLedger;
  readonly runner: ComputeRunner;
  readonly blocks: readonly Block[];
  readonly layout: ParameterLayout;
  readonly packed: readonly PackedParams[];
  readonly batches: readonly MicroBatch[];
}

export class OperationEffects {
  readonly #parts: EffectParts;
  readonly #known = new Map<string, Effect>();
  /** Reverse passes that left memory which may not be each tensor's own. */
  readonly #sharing = new Set<OperationId>();
  readonly #blockKeys: readonly string[];
  readonly #batchKeys: readonly string[];

  constructor(parts: EffectParts) {
    this.#parts = parts;
    this.#blockKeys = parts.blocks.map((block, index) => blockKey(block, index, parts));
    this.#batchKeys = parts.batches.map(shapeKey);
  }

  /** Runs an operation, or what stands in for it. Returns the highest bytes while it ran. */
  async run(operation: Operation, action: Compute): Promise<number> {
    const { ledger, runner } = this.#parts;
    for (const output of operation.frees ?? []) runner.free(output);
    const { id } = operation;
    const key = this.#keyOf(action);
    const before = ledger.liveBytes;
    const taken = this.#takenBytes(action);
    const known = key === undefined ? undefined : this.#known.get(key);
    let peak: number;
    if (known === undefined) {
      ledger.resetPeak();
      await runner.run({ ...operation, frees: [], drops: [] }, action);
      peak = ledger.resetPeak();
      const left = runner.leftShapes(id);
      const effect = { rise: peak - before, left, block: this.#blockOf(action) };
      const isOwn = ledger.liveBytes - before === leftBytes(left) - taken;
      // The head keeps more than it leaves, and always runs.
      if (!isOwn && action.kind === 'reverse') this.#sharing.add(id);
      if (isOwn && key !== undefined) this.#known.set(key, effect);
    } else {
      // A later operation may add to these gradients, by the names of this block's parameters.
      runner.standIn(id, action, renamed(known, this.#blockOf(action)));
      peak = before + known.rise;
    }
    for (const output of operation.drops ?? []) runner.free(output);
    return peak;
  }

  /** Undefined for an operation that has to run. */
  #keyOf(action: Compute): string | undefined {
    const { blocks, runner } = this.#parts;
    const last = blocks.length - 1;
    switch (action.kind) {
      case 'rows':
      case 'reverse-rows':
      case 'forward':
      case 'reverse': {
        const index = 'block' in action ? action.block : 0;
        if (!runner.hasFields(blocks[index]!, action.microBatch)) return undefined;
        if (takenBy(action).some(({ operation }) => this.#sharing.has(operation))) return undefined;
        const places = [
          'input' in action ? placeOf(action.input) : '',
          'dy' in action ? placeOf(action.dy) : '',
          'sums' in action && action.sums !== undefined,
        ];
        const facts = [index === last, this.#blockKeys[index], this.#batchKeys[action.microBatch]];
        return [action.kind, ...places, ...facts].join('|');
      }
      case 'forward-tile':
      case 'backward-tile': {
        if (action.tile === 0 || action.tile === this.#tileCount() - 1) return undefined;
        const batches = action.microBatches.map((one) => this.#batchKeys[one]);
        return [action.kind, ...batches].join('|');
      }
      case 'prepare':
      case 'end':
      case 'reverse-prepare':
        return undefined;
      default:
        return action satisfies never;
    }
  }

  /** Bytes of earlier outputs that an operation frees, where they are their own. */
  #takenBytes(action: Compute): number {
    return takenBy(action).reduce((sum, { operation, part }) => {
      const { activation, gradients } = this.#parts.runner.leftShapes(operation);
      const shapes = part === 'gradients' ? Object.values(gradients) : [activation ?? [0]];
      return sum + bytesOf(shapes);
    }, 0);
  }

  #blockOf(action: Compute): Block {
    const { blocks } = this.#parts;
    if ('block' in action) return blocks[action.block]!;
    return action.kind === 'rows' || action.kind === 'reverse-rows' ? blocks[0]! : blocks.at(-1)!;
  }

  #tileCount(): number {
    const { blocks, layout } = this.#parts;
    const head = blocks.at(-1)!;
    if (head.kind !== 'tiled') return 0;
    const rows = layout.params.get(head.tiledParam)?.spec.shape[0] ?? 0;
    return Math.ceil(rows / head.tileRows);
  }
}

/** Earlier outputs that an operation consumes. */
function takenBy(action: Compute): Output[] {
  const taken: Output[] = [];
  if ('dy' in action && action.dy?.kind === 'output') {
    taken.push({ operation: action.dy.operation, part: 'activation' });
  }
  if ('sums' in action && action.sums !== undefined) {
    taken.push({ operation: action.sums, part: 'gradients' });
  }
  return taken;
}

function leftBytes({ activation, gradients, losses }: LeftShapes): number {
  return bytesOf(
    [activation, losses, ...Object.values(gradients)].filter((one) => one !== undefined),
  );
}

function bytesOf(shapes: readonly (readonly number[])[]): number {
  const lengths = shapes.map((shape) => shape.reduce((product, size) => product * size, 1));
  return lengths.reduce((sum, length) => sum + tensorBytes(length), 0);
}

/** What is left of an equal operation on `block`: equal blocks use their parameters in one order. */
function renamed({ left, block: ran }: Effect, block: Block): LeftShapes {
  if (ran === block) return left;
  const gradients = Object.entries(left.gradients).map(([name, shape]) => {
    return [block.uses[ran.uses.indexOf(name)]!, shape] as const;
  });
  return { ...left, gradients: Object.fromEntries(gradients) };
}

function placeOf(source: Source | undefined): string {
  return source?.kind ?? 'none';
}

function blockKey(block: Block, index: number, { layout, packed }: EffectParts): string {
  const aliased = new Set(packed[index]!.aliased.map(({ spec }) => spec.name));
  const uses = block.uses.map((name) => {
    const spec = layout.params.get(name)?.spec;
    return [spec?.shape.join('x'), spec?.trainable !== false, aliased.has(name)].join();
  });
  return [block.kind, block.kindKey, index === 0, ...uses].join(' ');
}

/**
 * @file What compute operations do to device memory, remembered: equal operations rise as high and
 * leave as much, so that a plan runs each kind once. What the others leave is counted, not allocated.
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
import type { LeftShapes } from './compute-outputs.js';
import type { ComputeRunner } from './compute-runner.js';
import { CountedOutputs, bytesByPart, bytesOf } from './counted-outputs.js';
import { shapeKey } from './micro-batch-shapes.js';

interface Effect {
  /** Highest bytes above what was live when it began. */
  readonly rise: number;
  readonly left: LeftShapes;
  /** Bytes of what is left, by part. */
  readonly parts: ReadonlyMap<Output['part'], number>;
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
  readonly #counted = new CountedOutputs();
  /** Reverse passes that left memory which may not be each tensor's own. */
  readonly #sharing = new Set<OperationId>();
  /** Equal numbers of equal blocks, and of micro-batches of equal shapes. */
  readonly #blockKeys: readonly number[];
  readonly #batchKeys: readonly number[];
  readonly #tileCount: number;

  constructor(parts: EffectParts) {
    this.#parts = parts;
    this.#blockKeys = numbered(parts.blocks.map((block, index) => blockKey(block, index, parts)));
    this.#batchKeys = numbered(parts.batches.map(shapeKey));
    this.#tileCount = tileCountOf(parts);
  }

  /** Runs an operation, or counts what it would do. Returns the highest bytes while it runs. */
  async run(operation: Operation, action: Compute): Promise<number> {
    for (const output of operation.frees ?? []) this.#free(output);
    const key = this.#keyOf(action);
    const known = key === undefined ? undefined : this.#known.get(key);
    const peak =
      known === undefined
        ? await this.#perform(operation, action, key)
        : this.#standIn(operation.id, action, known);
    for (const output of operation.drops ?? []) this.#free(output);
    return peak;
  }

  async #perform(operation: Operation, action: Compute, key: string | undefined): Promise<number> {
    const { ledger, runner } = this.#parts;
    for (const id of usedBy(action)) {
      if (this.#counted.has(id)) runner.leaveZeros(id, this.#counted.take(id));
    }
    const before = ledger.liveBytes;
    const taken = this.#takenBytes(action);
    ledger.resetPeak();
    await runner.run({ ...operation, frees: [], drops: [] }, action);
    const peak = ledger.resetPeak();
    const left = runner.leftShapes(operation.id);
    const parts = bytesByPart(left);
    const effect = { rise: peak - before, left, parts, block: this.#blockOf(action) };
    const isOwn = ledger.liveBytes - before === sumOf(parts.values()) - taken;
    // The head keeps more than it leaves, and always runs.
    if (!isOwn && action.kind === 'reverse') this.#sharing.add(operation.id);
    if (isOwn && key !== undefined) this.#known.set(key, effect);
    return peak + this.#counted.bytes;
  }

  #standIn(id: OperationId, action: Compute, effect: Effect): number {
    const { ledger, runner } = this.#parts;
    const peak = ledger.liveBytes + this.#counted.bytes + effect.rise;
    for (const output of takenBy(action)) {
      if (output.part === 'activation' || effect.parts.has('gradients')) this.#free(output);
    }
    const { activation } = effect.left;
    if (activation !== undefined && (action.kind === 'rows' || action.kind === 'forward')) {
      const block = action.kind === 'rows' ? 0 : action.block;
      runner.noteActivation(block + 1, action.microBatch, activation);
    }
    // A later operation may add to these gradients, by the names of this block's parameters.
    this.#counted.leave(id, effect.parts, () => renamed(effect, this.#blockOf(action)));
    return peak;
  }

  #free(output: Output): void {
    if (this.#counted.has(output.operation)) this.#counted.free(output);
    else this.#parts.runner.free(output);
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
        const input = 'input' in action ? placeOf(action.input) : '';
        const dy = 'dy' in action ? placeOf(action.dy) : '';
        const adds = 'sums' in action && action.sums !== undefined;
        const block = this.#blockKeys[index];
        const batch = this.#batchKeys[action.microBatch];
        return `${action.kind}|${input}|${dy}|${adds}|${index === last}|${block}|${batch}`;
      }
      case 'forward-tile':
      case 'backward-tile': {
        if (action.tile === 0 || action.tile === this.#tileCount - 1) return undefined;
        let key: string = action.kind;
        for (const one of action.microBatches) key += `|${this.#batchKeys[one]}`;
        return key;
      }
      case 'prepare':
      case 'end':
      case 'reverse-prepare':
      case 'extend':
      case 'prepare-last':
      case 'logits-tile':
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

/** Earlier operations whose outputs an operation reads or consumes. */
function usedBy(action: Compute): OperationId[] {
  const used: OperationId[] = takenBy(action).map(({ operation }) => operation);
  if ('input' in action && action.input?.kind === 'output') used.push(action.input.operation);
  return used;
}

function sumOf(values: Iterable<number>): number {
  let sum = 0;
  for (const value of values) sum += value;
  return sum;
}

/** What is left of an equal operation on `block`: equal blocks use their parameters in one order. */
function renamed({ left, block: ran }: Effect, block: Block): LeftShapes {
  if (ran === block) return left;
  const gradients = Object.entries(left.gradients).map(([name, shape]) => {
    return [block.uses[ran.uses.indexOf(name)]!, shape] as const;
  });
  return { ...left, gradients: Object.fromEntries(gradients) };
}

/** Small numbers instead of long keys: equal ones of equal keys. */
function numbered(keys: readonly string[]): number[] {
  const numbers = new Map<string, number>();
  return keys.map((key) => {
    const number = numbers.get(key) ?? numbers.size;
    numbers.set(key, number);
    return number;
  });
}

function tileCountOf({ blocks, layout }: EffectParts): number {
  const head = blocks.at(-1)!;
  if (head.kind !== 'tiled') return 0;
  const rows = layout.params.get(head.tiledParam)?.spec.shape[0] ?? 0;
  return Math.ceil(rows / head.tileRows);
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

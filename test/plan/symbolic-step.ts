/**
 * @file Carries out a step plan with names in place of bytes, and watches over it: what an operation
 * reads is what it needs, and operations that touch the same bytes are ordered by what they wait
 * for, whatever the timing.
 */
import { expect } from 'vitest';
import type { StepInput } from '../../src/plan/step-input.js';
import { packParams } from '../../src/plan/packed-params.js';
import type {
  Compute,
  Operation,
  OperationId,
  Output,
  Source,
  StepPlan,
  Transfer,
} from '../../src/plan/step-plan.js';

/** Bytes of the region and what was fetched into them. */
interface Filled {
  readonly start: number;
  readonly end: number;
  readonly content: string;
  /** The fetch and all readers. */
  readonly users: OperationId[];
}

type Act<K extends string> = Extract<Compute | Transfer, { kind: K }>;

/** What a step has done when its plan has been carried out. */
export interface SymbolicResult {
  /** By `block`, or `tile n`: micro-batches in the order in which their gradients were added. */
  readonly gradients: ReadonlyMap<string, readonly number[]>;
  readonly losses: readonly number[];
  readonly updatedShards: readonly number[];
  /** Outputs that stayed on the device for longer than the transfers that read them had to. */
  readonly leaked: readonly string[];
}

export function carryOut(input: StepInput, plan: StepPlan): SymbolicResult {
  return new SymbolicStep(input, plan).run();
}

class SymbolicStep {
  readonly #input: StepInput;
  readonly #plan: StepPlan;
  /** Content of what compute left on the device, by operation and part. */
  readonly #outputs = new Map<string, string>();
  /** Transfers that read an output. */
  readonly #readers = new Map<string, OperationId[]>();
  #region: Filled[] = [];
  /** Content and users of places away from the device. */
  readonly #places = new Map<string, { content: string; users: OperationId[] }>();
  /** Operations that are over when an operation starts. */
  readonly #before: Set<OperationId>[] = [];
  readonly #gradients = new Map<string, number[]>();
  readonly #losses: number[] = [];
  readonly #updated: number[] = [];
  readonly #rows: number[] = [];
  #lastCompute = -1;
  /** Tiles that each micro-batch's head pass has seen. */
  readonly #head = new Map<number, { forward: number; backward: number; ended: boolean }>();

  constructor(input: StepInput, plan: StepPlan) {
    this.#input = input;
    this.#plan = plan;
  }

  run(): SymbolicResult {
    for (const operation of this.#plan.operations) this.#step(operation);
    return {
      gradients: this.#gradients,
      losses: this.#losses,
      updatedShards: this.#updated,
      leaked: [...this.#outputs.keys()].filter((output) => this.#isLate(output)),
    };
  }

  /** Whether compute has gone on for longer than what reads an output was given. */
  #isLate(output: string): boolean {
    const last = this.#readers.get(output)?.at(-1);
    if (last === undefined) return true;
    const later = this.#plan.operations.filter(({ id, lane }) => lane === 'compute' && id > last);
    // A carried activation is used by one more operation; losses are given four.
    return later.length > (output.startsWith('losses') ? 4 : this.#input.spillLag + 1);
  }

  #step(operation: Operation): void {
    const { id, action, lane } = operation;
    expect(id).toBe(this.#before.length);
    const isCompute = lane === 'compute';
    const waits = [...operation.after, ...(operation.copied ?? [])];
    // Compute runs in order: an operation is over when a later one is.
    const over = new Set<OperationId>();
    for (const other of waits) {
      expect(other).toBeLessThan(id);
      if (!operation.after.includes(other)) continue;
      over.add(other);
      for (const one of this.#before[other]!) over.add(one);
    }
    const previous = this.#lastCompute;
    // Runs after, though it may be launched before, the one before it.
    if (isCompute && previous >= 0) {
      over.add(previous);
      for (const one of this.#before[previous]!) over.add(one);
    }
    this.#before.push(over);
    for (const output of operation.frees ?? []) {
      for (const reader of this.#readers.get(key(output)) ?? []) {
        expect(waits.includes(reader) || over.has(reader), 'read before it is freed').toBe(true);
      }
      this.#free(output);
    }
    if (isCompute) this.#compute(id, action as Compute);
    else if (action.kind === 'norm') this.#norm(id);
    else if (action.kind === 'update') this.#update(id, action.group, action.shard);
    else this.#transfer(id, action as Transfer);
    if (isCompute) this.#lastCompute = id;
    for (const output of operation.drops ?? []) {
      expect(this.#readers.get(key(output)) ?? []).toEqual([]);
      this.#free(output);
    }
  }

  // ---- compute

  #compute(id: OperationId, action: Compute): void {
    switch (action.kind) {
      case 'rows':
        this.#readRegion(id, action.offset, `rows of ${action.microBatch}`);
        this.#leave(id, 'activation', `x 1 ${action.microBatch}`);
        return;
      case 'forward':
        this.#readParams(id, action.block, action.offset);
        this.#readSource(id, action.input, `x ${action.block} ${action.microBatch}`);
        this.#leave(id, 'activation', `x ${action.block + 1} ${action.microBatch}`);
        return;
      case 'reverse':
        this.#reverse(id, action);
        return;
      case 'reverse-rows':
        this.#takeSource(id, action.dy, `dx 1 ${action.microBatch}`);
        this.#leave(id, 'gradients', `row gradients of ${action.microBatch}`);
        return;
      case 'prepare':
        this.#readParams(id, this.#lastBlock, action.offset);
        this.#readSource(id, action.input, `x ${this.#lastBlock} ${action.microBatch}`);
        expect(this.#head.has(action.microBatch)).toBe(false);
        this.#head.set(action.microBatch, { forward: 0, backward: 0, ended: false });
        return;
      case 'forward-tile':
        this.#readTile(id, action);
        for (const one of action.microBatches) {
          expect(this.#head.get(one)!.forward).toBe(action.tile);
          this.#head.get(one)!.forward += 1;
        }
        return;
      case 'end':
        expect(this.#head.get(action.microBatch)!.forward).toBe(this.#tileCount);
        this.#head.get(action.microBatch)!.ended = true;
        this.#leave(id, 'losses', `losses of ${action.microBatch}`);
        return;
      case 'backward-tile':
        this.#readTile(id, action);
        for (const one of action.microBatches) {
          expect(this.#head.get(one)).toMatchObject({ backward: action.tile, ended: true });
          this.#head.get(one)!.backward += 1;
        }
        this.#leave(id, 'gradients', gradient(`tile ${action.tile}`, action.microBatches));
        return;
      case 'reverse-prepare':
        expect(this.#head.get(action.microBatch)!.backward).toBe(this.#tileCount);
        this.#head.delete(action.microBatch);
        this.#readParams(id, this.#lastBlock, action.offset);
        this.#readSource(id, action.input, `x ${this.#lastBlock} ${action.microBatch}`);
        this.#leave(id, 'activation', `dx ${this.#lastBlock} ${action.microBatch}`);
        this.#addGradients(id, this.#lastBlock, action.microBatch, action.sums);
        return;
      case 'extend':
      case 'prepare-last':
      case 'logits-tile':
        expect.unreachable('steps continue no sequence');
        return;
      default:
        return action satisfies never;
    }
  }

  /** A tile has been fetched, or is at home on the device. */
  #readTile(id: OperationId, { tile, offset }: Act<'forward-tile' | 'backward-tile'>): void {
    if (offset !== undefined) {
      this.#readRegion(id, offset, `tile ${tile}`);
      return;
    }
    const { blocks, layout, homes, dtype } = this.#input;
    const head = blocks.at(-1)!;
    const { group } = layout.params.get(head.kind === 'tiled' ? head.tiledParam : '')!;
    expect({ home: homes[group]!.param, dtype }).toEqual({ home: 'device', dtype: 'float32' });
  }

  #reverse(id: OperationId, action: Act<'reverse'>): void {
    const { block, microBatch } = action;
    this.#readParams(id, block, action.offset);
    this.#readSource(id, action.input, `x ${block} ${microBatch}`);
    if (block === this.#lastBlock) {
      expect(action.dy).toBeUndefined();
      this.#leave(id, 'losses', `losses of ${microBatch}`);
    } else {
      this.#takeSource(id, action.dy!, `dx ${block + 1} ${microBatch}`);
    }
    if (block > 0) this.#leave(id, 'activation', `dx ${block} ${microBatch}`);
    this.#addGradients(id, block, microBatch, action.sums);
  }

  #addGradients(
    id: OperationId,
    block: number,
    microBatch: number,
    sums: OperationId | undefined,
  ): void {
    if (!this.#hasGradients(block)) return;
    const before =
      sums === undefined ? [] : microBatchesOf(this.#take({ operation: sums, part: 'gradients' }));
    this.#leave(id, 'gradients', gradient(String(block), [...before, microBatch]));
  }

  // ---- transfers

  #transfer(id: OperationId, action: Transfer): void {
    switch (action.kind) {
      case 'fetch-params': {
        const { byteLength } = packParams(this.#input.blocks[action.block]!, this.#input);
        this.#fill(id, action.offset, byteLength, `params ${action.block}`);
        return;
      }
      case 'fetch-rows':
        this.#fill(id, action.offset, this.#activationSlot, `rows of ${action.microBatch}`);
        return;
      case 'fetch-tile':
        this.#fill(id, action.offset, this.#input.region.tileSlotBytes, `tile ${action.tile}`);
        return;
      case 'fetch-activation': {
        const content = this.#readPlace(id, this.#placeOf(action.block, action.microBatch));
        this.#fill(id, action.offset, this.#activationSlot, content);
        return;
      }
      case 'spill-activation': {
        const content = this.#read(id, action.operation, 'activation');
        expect(content.endsWith(` ${action.block} ${action.microBatch}`)).toBe(true);
        this.#writePlace(id, this.#placeOf(action.block, action.microBatch), content);
        return;
      }
      case 'write-gradients':
        this.#writeGradients(id, action.operation, String(action.block), action.first);
        return;
      case 'write-tile':
        this.#writeGradients(id, action.operation, `tile ${action.tile}`, action.first);
        return;
      case 'add-rows': {
        const content = this.#read(id, action.operation, 'gradients');
        expect(content).toBe(`row gradients of ${action.microBatch}`);
        this.#writePlace(id, 'row sums', 'rows');
        this.#rows.push(action.microBatch);
        return;
      }
      case 'write-rows':
        this.#readPlace(id, 'row sums');
        this.#writePlace(id, this.#groupPlace(action.param), 'gradient');
        this.#gradients.set(`rows ${action.param}`, [...this.#rows]);
        return;
      case 'merge-uses':
        for (const { param, block } of this.#input.plan.useAccumulators) {
          if (param.spec.name === action.param)
            this.#readPlace(id, `sums ${action.param} ${block}`);
        }
        this.#writePlace(id, this.#groupPlace(action.param), 'gradient');
        return;
      case 'losses': {
        const content = this.#read(id, action.operation, 'losses');
        expect(content).toBe(`losses of ${action.microBatch}`);
        this.#writePlace(id, 'loss sum', 'losses');
        this.#losses.push(action.microBatch);
        return;
      }
      case 'fetch-cache':
      case 'write-cache':
      case 'write-logits':
        expect.unreachable('steps continue no sequence');
        return;
      default:
        return action satisfies never;
    }
  }

  #writeGradients(id: OperationId, from: OperationId, name: string, first: boolean): void {
    const content = this.#read(id, from, 'gradients');
    expect(content.startsWith(`gradient of ${name} by `), content).toBe(true);
    const before = this.#gradients.get(name) ?? [];
    expect(first).toBe(before.length === 0);
    this.#gradients.set(name, [...before, ...microBatchesOf(content)]);
    const { blocks, plan } = this.#input;
    const isTile = name.startsWith('tile');
    const block = isTile ? this.#lastBlock : Number(name);
    const last = blocks[this.#lastBlock]!;
    const params = isTile
      ? [last.kind === 'tiled' ? last.tiledParam : '']
      : this.#trainableOf(block);
    for (const param of params) {
      const sums = plan.useAccumulators.some(
        (use) => use.param.spec.name === param && use.block === block,
      );
      this.#writePlace(id, sums ? `sums ${param} ${block}` : this.#groupPlace(param), 'gradient');
    }
  }

  // ---- updates

  #norm(id: OperationId): void {
    this.#readPlace(id, 'loss sum');
    for (const { trainable, index } of this.#input.layout.groups) {
      if (trainable) this.#readPlace(id, `group ${index}`);
    }
  }

  #update(id: OperationId, group: number, shard: number): void {
    this.#readPlace(id, 'loss sum');
    this.#readPlace(id, `group ${group}`);
    if (this.#input.clips) {
      const norm = this.#plan.operations.find(({ action }) => action.kind === 'norm')!;
      expect(this.#before[id]!.has(norm.id)).toBe(true);
    }
    this.#updated.push(shard);
  }

  // ---- bytes on the device

  #leave(operation: OperationId, part: Output['part'], content: string): void {
    this.#outputs.set(key({ operation, part }), content);
  }

  #free(output: Output): void {
    expect(this.#outputs.delete(key(output)), `${key(output)} is freed once`).toBe(true);
  }

  #take(output: Output): string {
    const content = this.#outputs.get(key(output));
    expect(content, `${key(output)} is there`).toBeDefined();
    expect(this.#readers.get(key(output)) ?? [], 'nothing still reads it').toEqual([]);
    this.#outputs.delete(key(output));
    return content!;
  }

  /** A transfer reads what a compute operation left. */
  #read(id: OperationId, operation: OperationId, part: Output['part']): string {
    const output = key({ operation, part });
    const content = this.#outputs.get(output);
    expect(content, `${output} is there for ${id}`).toBeDefined();
    expect(this.#before[id]!.has(operation), 'the output is made before').toBe(true);
    this.#readers.set(output, [...(this.#readers.get(output) ?? []), id]);
    return content!;
  }

  #readSource(id: OperationId, source: Source | undefined, content: string): void {
    if (source === undefined) expect(content).toMatch(/^x 0 /);
    else if (source.kind === 'region') this.#readRegion(id, source.offset, content);
    else {
      const output = key({ operation: source.operation, part: 'activation' });
      expect(this.#outputs.get(output)).toBe(content);
    }
  }

  #takeSource(id: OperationId, source: Source, content: string): void {
    if (source.kind === 'region') this.#readRegion(id, source.offset, content);
    else expect(this.#take({ operation: source.operation, part: 'activation' })).toBe(content);
  }

  #readParams(id: OperationId, block: number, offset: number): void {
    if (packParams(this.#input.blocks[block]!, this.#input).byteLength === 0) return;
    this.#readRegion(id, offset, `params ${block}`);
  }

  #fill(id: OperationId, start: number, length: number, content: string): void {
    const end = start + length;
    expect(end).toBeLessThanOrEqual(this.#input.region.byteLength);
    const kept: Filled[] = [];
    for (const old of this.#region) {
      if (old.end <= start || old.start >= end) {
        kept.push(old);
        continue;
      }
      this.#expectOver(id, old.users, `${old.content} under ${content}`);
      // What is left of it is no longer whole, and may still be in use.
      if (old.start < start || old.end > end) kept.push({ ...old, content: 'part' });
    }
    this.#region = [...kept, { start, end, content, users: [id] }];
  }

  #readRegion(id: OperationId, offset: number, content: string): void {
    const filled = this.#region.find(
      ({ start, content: one }) => start === offset && one !== 'part',
    );
    expect(filled?.content).toBe(content);
    expect(this.#before[id]!.has(filled!.users[0]!), `${content} is fetched before`).toBe(true);
    filled!.users.push(id);
  }

  // ---- places away from the device

  #readPlace(id: OperationId, place: string): string {
    const held = this.#places.get(place);
    expect(held, `${place} holds something`).toBeDefined();
    // Readers do not mind one another; the writers are all ordered, so the last one is enough.
    this.#expectOver(id, held!.users.slice(0, 1), place);
    held!.users.push(id);
    return held!.content;
  }

  #writePlace(id: OperationId, place: string, content: string): void {
    this.#expectOver(id, this.#places.get(place)?.users ?? [], place);
    this.#places.set(place, { content, users: [id] });
  }

  #expectOver(id: OperationId, users: readonly OperationId[], what: string): void {
    for (const user of users) {
      if (user !== id)
        expect(this.#before[id]!.has(user), `${user} before ${id}: ${what}`).toBe(true);
    }
  }

  #placeOf(block: number, microBatch: number): string {
    return `activation ${block} ${this.#input.plan.order === 'vertical' ? microBatch : 0}`;
  }

  #groupPlace(param: string): string {
    return `group ${this.#input.layout.params.get(param)!.group}`;
  }

  // ---- the model

  get #lastBlock(): number {
    return this.#input.blocks.length - 1;
  }

  get #activationSlot(): number {
    return this.#input.region.activationSlotBytes;
  }

  get #tileCount(): number {
    const last = this.#input.blocks[this.#lastBlock]!;
    if (last.kind !== 'tiled') return 0;
    return Math.ceil(
      this.#input.layout.params.get(last.tiledParam)!.spec.shape[0]! / last.tileRows,
    );
  }

  #trainableOf(index: number): string[] {
    const block = this.#input.blocks[index]!;
    if (block.kind === 'row') return [];
    return block.uses.filter(
      (name) =>
        this.#input.layout.params.get(name)!.spec.trainable !== false &&
        !(block.kind === 'tiled' && name === block.tiledParam),
    );
  }

  #hasGradients(block: number): boolean {
    return this.#trainableOf(block).length > 0;
  }
}

function key({ operation, part }: Output): string {
  return `${part} of ${operation}`;
}

function gradient(name: string, microBatches: readonly number[]): string {
  return `gradient of ${name} by ${microBatches.join()}`;
}

function microBatchesOf(content: string): number[] {
  return content.split(' by ')[1]!.split(',').map(Number);
}

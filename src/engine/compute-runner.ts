/**
 * @file Runs the compute operations of a step plan on a device: the real one, or the meta device,
 * whose ledger then says what the plan needs.
 *
 * What an operation leaves on the device is kept here by its number until the plan frees it. Reads
 * fetched parameters and activations as views of the region; the plan orders fills and reads.
 *
 * Owns the tensors of its outputs and of the head's passes.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError, assert } from '../../core/errors.js';
import type { Device, DeviceRegion } from '../../tiers/device/device.js';
import type { Block, BlockAux, ParamName, Params, Tile, TiledBlock } from '../model/block.js';
import type { PackedParams } from '../plan/packed-params.js';
import type { ParamAddress, ParameterLayout } from '../plan/parameter-layout.js';
import type { Compute, Operation, OperationId, Output, Source } from '../plan/step-plan.js';
import {
  addTensors,
  forwardDense,
  forwardRows,
  prepareTiled,
  reverse,
  runTiled,
  seedOf,
} from './block-compute.js';

/** What an operation left. */
interface Left {
  activation?: Tensor | undefined;
  gradients?: Readonly<Record<ParamName, Tensor>> | undefined;
  losses?: Tensor | undefined;
}

/** Shapes of what an operation left. */
export interface LeftShapes {
  readonly activation: readonly number[] | undefined;
  readonly gradients: Readonly<Record<ParamName, readonly number[]>>;
  readonly losses: readonly number[] | undefined;
}

/** The head's pass over one micro-batch. */
interface HeadPass {
  readonly aux: BlockAux;
  prepared: Tensor[];
  carry: Tensor[];
  saved: Tensor[];
  dPrepared: Tensor[];
}

/** What the runner works with; its caller owns all of it. */
export interface ComputeParts {
  readonly device: Device;
  readonly region: DeviceRegion;
  readonly blocks: readonly Block[];
  readonly layout: ParameterLayout;
  readonly packed: readonly PackedParams[];
  /** Names of a block's parameters whose gradients are wanted. */
  readonly trainableOf: (block: Block) => readonly ParamName[];
  /** A new tensor over a parameter that is homed on the device. */
  readonly alias: (address: ParamAddress) => Tensor;
  /** Shape of the input of a block for a micro-batch. */
  readonly inputShape: (block: number, microBatch: number) => readonly number[];
  /** Told the shape of each activation, as it is made. */
  readonly onActivation: (block: number, microBatch: number, shape: readonly number[]) => void;
  /** Counts bytes of batch fields. */
  readonly countUpload: (bytes: number) => void;
}

/** Name of the gradient of a tile among an operation's gradients. */
const TILE = '';

export class ComputeRunner {
  readonly #parts: ComputeParts;
  readonly #left = new Map<OperationId, Map<Output['part'], Left[Output['part']]>>();
  readonly #heads = new Map<number, HeadPass>();
  /** Batch fields on the device, by `microBatch/name`. */
  readonly #fields = new Map<string, Tensor>();
  #aux: readonly BlockAux[] = [];

  constructor(parts: ComputeParts) {
    this.#parts = parts;
  }

  /** Begins a step over the micro-batches that `aux` describes. */
  begin(aux: readonly BlockAux[]): void {
    assert(this.#left.size === 0 && this.#heads.size === 0, 'the step before left nothing');
    this.#aux = aux;
  }

  /**
   * Launches a compute operation's kernels; they may run later.
   *
   * @throws what blocks and the device throw; BLOCK_INVALID, DATA_INVALID
   */
  async run(operation: Operation, action: Compute): Promise<void> {
    for (const output of operation.frees ?? []) this.free(output);
    await this.#perform(operation.id, action);
    for (const output of operation.drops ?? []) this.free(output);
  }

  /** The tensor of a part of what an operation left; it stays here. */
  activation(operation: OperationId): Tensor {
    return this.#part(operation, 'activation');
  }

  losses(operation: OperationId): Tensor {
    return this.#part(operation, 'losses');
  }

  gradients(operation: OperationId): Readonly<Record<ParamName, Tensor>> {
    return this.#part(operation, 'gradients');
  }

  /** The gradient of a tile. */
  tileGradient(operation: OperationId): Tensor {
    return this.gradients(operation)[TILE]!;
  }

  free({ operation, part }: Output): void {
    for (const tensor of tensorsOf(this.#take(operation, part))) tensor.dispose();
  }

  /** Whether the batch fields that a block reads are on the device already. */
  hasFields(block: Block, microBatch: number): boolean {
    const { fields } = this.#aux[microBatch]!;
    const names = [...(block.reads ?? []), ...(block.readsIfPresent ?? [])];
    return names.every(
      (name) => fields[name] === undefined || this.#fields.has(`${microBatch}/${name}`),
    );
  }

  leftShapes(operation: OperationId): LeftShapes {
    const left = this.#left.get(operation);
    const gradients = left?.get('gradients') as Left['gradients'];
    const shapeOf = (part: 'activation' | 'losses') =>
      (left?.get(part) as Tensor | undefined)?.shape;
    return {
      activation: shapeOf('activation'),
      gradients: Object.fromEntries(
        Object.entries(gradients ?? {}).map(([name, { shape }]) => [name, shape]),
      ),
      losses: shapeOf('losses'),
    };
  }

  /**
   * Takes what a dense or row operation takes, or a tile's in the middle, and leaves zeros of
   * `shapes`; runs nothing. For plans, where an equal operation has run before.
   */
  standIn(id: OperationId, action: Compute, shapes: LeftShapes): void {
    if ('dy' in action && action.dy?.kind === 'output') {
      this.free({ operation: action.dy.operation, part: 'activation' });
    }
    const hasGradients = Object.keys(shapes.gradients).length > 0;
    if ('sums' in action && action.sums !== undefined && hasGradients) {
      this.free({ operation: action.sums, part: 'gradients' });
    }
    const zeros = (shape: readonly number[]): Tensor =>
      this.#parts.device.run(() => tf.fill([...shape], 0));
    const { activation, gradients, losses } = shapes;
    if (action.kind === 'rows' || action.kind === 'forward') {
      const block = action.kind === 'rows' ? 0 : action.block;
      this.#parts.onActivation(block + 1, action.microBatch, activation ?? []);
    }
    this.#leave(id, {
      activation: activation && zeros(activation),
      gradients: Object.fromEntries(
        Object.entries(gradients).map(([name, shape]) => [name, zeros(shape)]),
      ),
      losses: losses && zeros(losses),
    });
  }

  /** Frees everything that is left. */
  clear(): void {
    const parts = [...this.#left.values()].flatMap((left) => [...left.values()]);
    for (const tensor of parts.flatMap(tensorsOf)) tensor.dispose();
    this.#left.clear();
    for (const pass of this.#heads.values()) disposeHead(pass);
    this.#heads.clear();
    for (const tensor of this.#fields.values()) tensor.dispose();
    this.#fields.clear();
  }

  async #perform(id: OperationId, action: Compute): Promise<void> {
    switch (action.kind) {
      case 'rows':
        return this.#rows(id, action);
      case 'forward':
        return this.#forward(id, action);
      case 'reverse':
        return this.#reverse(id, action);
      case 'reverse-rows':
        return this.#reverseRows(id, action);
      case 'prepare':
        return this.#prepare(action);
      case 'forward-tile':
        this.#forwardTile(action);
        return;
      case 'end':
        this.#end(id, action);
        return;
      case 'backward-tile':
        this.#backwardTile(id, action);
        return;
      case 'reverse-prepare':
        this.#reversePrepare(id, action);
        return;
      default:
        return action satisfies never;
    }
  }

  async #rows(
    id: OperationId,
    { microBatch, offset }: Extract<Compute, { kind: 'rows' }>,
  ): Promise<void> {
    const { device, region, blocks, layout } = this.#parts;
    const block = blocks[0]!;
    assert(block.kind === 'row', 'rows belong to a row block');
    await this.#withFields(block, 0, microBatch, (aux) => {
      let start = offset;
      const rows = block.gathers.map((gather) => {
        const columns = layout.params.get(gather.param)!.spec.shape[1]!;
        const count = gather.indices(aux.fields).length;
        const view = region.view(start, [count, columns], 'float32');
        start += rowBytes(count, columns);
        return view;
      });
      try {
        this.#leaveActivation(id, 1, microBatch, forwardRows(device, block, rows, aux));
      } finally {
        for (const view of rows) view.dispose();
      }
    });
  }

  async #forward(id: OperationId, action: Extract<Compute, { kind: 'forward' }>): Promise<void> {
    const { device, blocks } = this.#parts;
    const { block: index, microBatch } = action;
    const block = blocks[index]!;
    assert(block.kind === 'dense', 'only dense blocks run forward as a whole');
    await this.#withFields(block, index, microBatch, (aux) =>
      this.#withParams(index, action.offset, (params) =>
        this.#withSource(action.input, index, microBatch, (input) => {
          const output = forwardDense(device, block, params, input ? [input] : [], aux);
          this.#leaveActivation(id, index + 1, microBatch, output);
        }),
      ),
    );
  }

  async #reverse(id: OperationId, action: Extract<Compute, { kind: 'reverse' }>): Promise<void> {
    const { device, blocks } = this.#parts;
    const { block: index, microBatch } = action;
    const block = blocks[index]!;
    assert(block.kind === 'dense', 'only dense blocks are reversed as a whole');
    await this.#withFields(block, index, microBatch, (aux) =>
      this.#withParams(index, action.offset, (params) =>
        this.#withSource(action.input, index, microBatch, (input) => {
          let losses: Tensor | undefined;
          const { dInput, dParams } = reverse(
            device,
            () => block.apply(params, input ? [input] : [], aux),
            params,
            this.#parts.trainableOf(block),
            input,
            (ys) => {
              const { dy } = action;
              if (dy !== undefined) return [this.#takeSource(dy, index + 1, microBatch)];
              const seed = seedOf(block, ys, aux.lossScale);
              losses = seed.losses;
              return [seed.dy];
            },
          );
          const gradients = this.#added(action.sums, dParams);
          this.#leave(id, { activation: dInput, gradients, losses });
        }),
      ),
    );
  }

  async #reverseRows(
    id: OperationId,
    { microBatch, dy }: Extract<Compute, { kind: 'reverse-rows' }>,
  ): Promise<void> {
    const { device, blocks } = this.#parts;
    const block = blocks[0]!;
    assert(block.kind === 'row', 'rows belong to a row block');
    await this.#withFields(block, 0, microBatch, (aux) => {
      const gradient = this.#takeSource(dy, 1, microBatch);
      const rows = device.run(() => block.backward(gradient, aux));
      if (!rows.includes(gradient)) gradient.dispose();
      const named = block.gathers.map(({ param }, index) => [param, rows[index]!] as const);
      this.#leave(id, { gradients: Object.fromEntries(named) });
    });
  }

  async #prepare(action: Extract<Compute, { kind: 'prepare' }>): Promise<void> {
    const { device, blocks } = this.#parts;
    const { microBatch } = action;
    const index = blocks.length - 1;
    const block = this.#tiled();
    const tensors = await this.#fieldsOf(block, index, microBatch);
    const aux = { ...this.#aux[microBatch]!, tensors, block: index };
    const pass: HeadPass = { aux, prepared: [], carry: [], saved: [], dPrepared: [] };
    this.#heads.set(microBatch, pass);
    this.#withParams(index, action.offset, (params) =>
      this.#withSource(action.input, index, microBatch, (input) => {
        const prepared = prepareTiled(device, block, params, input!, aux);
        pass.prepared = prepared.map((tensor) => device.own(tensor));
      }),
    );
    pass.carry = runTiled(device, () => block.begin(pass.prepared, aux));
  }

  #forwardTile(action: Extract<Compute, { kind: 'forward-tile' }>): void {
    const { device } = this.#parts;
    const block = this.#tiled();
    this.#withTile(action.tile, action.offset, (tile) => {
      for (const microBatch of action.microBatches) {
        const pass = this.#head(microBatch);
        const next = runTiled(device, () =>
          block.forwardTile(tile, pass.prepared, pass.carry, pass.aux),
        );
        disposeExcept(pass.carry, next);
        pass.carry = next;
      }
    });
  }

  #end(id: OperationId, { microBatch }: Extract<Compute, { kind: 'end' }>): void {
    const { device } = this.#parts;
    const block = this.#tiled();
    const pass = this.#head(microBatch);
    const { losses, saved } = runTiled(device, () =>
      block.end(pass.prepared, pass.carry, pass.aux),
    );
    disposeExcept(pass.carry, [...saved, losses]);
    pass.carry = [];
    pass.saved = saved;
    const own = saved.includes(losses) ? device.run(() => tf.clone(losses)) : losses;
    this.#leave(id, { losses: own });
  }

  #backwardTile(id: OperationId, action: Extract<Compute, { kind: 'backward-tile' }>): void {
    const { device } = this.#parts;
    const block = this.#tiled();
    const { tile: index, microBatches } = action;
    let sum: Tensor | undefined;
    this.#withTile(index, action.offset, (tile) => {
      for (const microBatch of microBatches) {
        const pass = this.#head(microBatch);
        const { dTile, dPrepared } = runTiled(device, () =>
          block.backwardTile(tile, pass.prepared, pass.saved, pass.aux),
        );
        pass.dPrepared = dPrepared.map((added, at) => {
          const before = pass.dPrepared[at];
          return before === undefined ? added : addTensors(device, before, added);
        });
        sum = sum === undefined ? dTile : addTensors(device, sum, dTile);
      }
    });
    this.#leave(id, { gradients: { [TILE]: sum! } });
    if (index < this.#tileCount() - 1) return;
    for (const microBatch of microBatches) {
      const pass = this.#head(microBatch);
      disposeExcept([...pass.prepared, ...pass.saved], []);
      pass.prepared = [];
      pass.saved = [];
    }
  }

  #reversePrepare(id: OperationId, action: Extract<Compute, { kind: 'reverse-prepare' }>): void {
    const { device, blocks } = this.#parts;
    const { microBatch } = action;
    const index = blocks.length - 1;
    const block = this.#tiled();
    const pass = this.#head(microBatch);
    this.#withParams(index, action.offset, (params) =>
      this.#withSource(action.input, index, microBatch, (input) => {
        const dys = pass.dPrepared;
        pass.dPrepared = [];
        const { dInput, dParams } = reverse(
          device,
          () => block.prepare(params, [input!], pass.aux),
          params,
          this.#parts.trainableOf(block),
          input,
          () => dys,
        );
        this.#leave(id, { activation: dInput, gradients: this.#added(action.sums, dParams) });
      }),
    );
    disposeHead(pass);
    this.#heads.delete(microBatch);
  }

  // ---- operands

  /** Runs `body` with a block's whole parameters as views; disposes these. */
  #withParams<T>(index: number, offset: number, body: (params: Params) => T): T {
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

  #withSource<T>(
    source: Source | undefined,
    block: number,
    microBatch: number,
    body: (tensor: Tensor | undefined) => T,
  ): T {
    if (source === undefined) return body(undefined);
    if (source.kind === 'output') return body(this.activation(source.operation));
    const shape = this.#parts.inputShape(block, microBatch);
    const view = this.#parts.region.view(source.offset, shape, 'float32');
    try {
      return body(view);
    } finally {
      view.dispose();
    }
  }

  /** The tensor of a source, for the caller to own. */
  #takeSource(source: Source, block: number, microBatch: number): Tensor {
    if (source.kind === 'output') return this.#take(source.operation, 'activation');
    const shape = this.#parts.inputShape(block, microBatch);
    return this.#parts.region.view(source.offset, shape, 'float32');
  }

  #withTile(index: number, offset: number, body: (tile: Tile) => void): void {
    const { region, layout } = this.#parts;
    const block = this.#tiled();
    const [rows, columns] = layout.params.get(block.tiledParam)!.spec.shape as [number, number];
    const firstRow = index * block.tileRows;
    const rowCount = Math.min(block.tileRows, rows - firstRow);
    const weight = region.view(offset, [rowCount, columns], 'float32');
    try {
      body({ weight, index, firstRow, rowCount });
    } finally {
      weight.dispose();
    }
  }

  async #withFields(
    block: Block,
    index: number,
    microBatch: number,
    body: (aux: BlockAux) => void,
  ): Promise<void> {
    const tensors = await this.#fieldsOf(block, index, microBatch);
    body({ ...this.#aux[microBatch]!, tensors, block: index });
  }

  /** The batch fields that a block reads, on the device since their first use in the step. */
  async #fieldsOf(
    block: Block,
    index: number,
    microBatch: number,
  ): Promise<Record<string, Tensor>> {
    const { fields } = this.#aux[microBatch]!;
    const optional = (block.readsIfPresent ?? []).filter((name) => fields[name] !== undefined);
    const tensors: Record<string, Tensor> = {};
    for (const name of [...(block.reads ?? []), ...optional]) {
      tensors[name] = await this.#field(name, block, index, microBatch);
    }
    return tensors;
  }

  /** @throws DATA_INVALID when the micro-batch lacks the field */
  async #field(name: string, block: Block, index: number, microBatch: number): Promise<Tensor> {
    const { device, countUpload } = this.#parts;
    const key = `${microBatch}/${name}`;
    const known = this.#fields.get(key);
    if (known !== undefined) return known;
    const { fields } = this.#aux[microBatch]!;
    const field = fields[name];
    if (field === undefined) {
      throw new SpillwayError(
        'DATA_INVALID',
        `block ${block.name} reads the field ${name}, which the micro-batch lacks`,
        { fields: Object.keys(fields), block: index },
      );
    }
    const tensor = await device.upload(field.data, field.shape, name);
    countUpload(field.data.byteLength);
    this.#fields.set(key, tensor);
    return tensor;
  }

  // ---- outputs

  #leaveActivation(id: OperationId, block: number, microBatch: number, tensor: Tensor): void {
    this.#parts.onActivation(block, microBatch, tensor.shape);
    this.#leave(id, { activation: tensor });
  }

  #leave(id: OperationId, { activation, gradients = {}, losses }: Left): void {
    // What aliases the region would change when that is filled again.
    const own = (tensor: Tensor): Tensor => this.#parts.device.own(tensor);
    const left = new Map<Output['part'], Left[Output['part']]>();
    if (activation !== undefined) left.set('activation', own(activation));
    const owned = Object.entries(gradients).map(([name, tensor]) => [name, own(tensor)] as const);
    if (owned.length > 0) left.set('gradients', Object.fromEntries(owned));
    if (losses !== undefined) left.set('losses', own(losses));
    if (left.size > 0) this.#left.set(id, left);
  }

  /** `added` by name to the gradients that `sums` left, in float32; consumes both. */
  #added(
    sums: OperationId | undefined,
    added: Readonly<Record<ParamName, Tensor>>,
  ): Record<ParamName, Tensor> {
    if (sums === undefined || Object.keys(added).length === 0) return { ...added };
    const before = this.#take(sums, 'gradients');
    const { device } = this.#parts;
    return Object.fromEntries(
      Object.entries(added).map(([name, tensor]) => {
        const sum = before[name];
        assert(sum !== undefined, 'every micro-batch has the same gradients', { name });
        return [name, addTensors(device, sum, tensor)];
      }),
    );
  }

  #part<P extends Output['part']>(operation: OperationId, part: P): NonNullable<Left[P]> {
    const value = this.#left.get(operation)?.get(part);
    assert(value !== undefined, 'the output is there', { operation, part });
    return value as NonNullable<Left[P]>;
  }

  #take<P extends Output['part']>(operation: OperationId, part: P): NonNullable<Left[P]> {
    const value = this.#part(operation, part);
    const left = this.#left.get(operation)!;
    left.delete(part);
    if (left.size === 0) this.#left.delete(operation);
    return value;
  }

  #head(microBatch: number): HeadPass {
    const pass = this.#heads.get(microBatch);
    assert(pass !== undefined, 'the head has been prepared', { microBatch });
    return pass;
  }

  #tiled(): TiledBlock {
    const block = this.#parts.blocks.at(-1);
    assert(block?.kind === 'tiled', 'the last block is tiled');
    return block;
  }

  #tileCount(): number {
    const block = this.#tiled();
    const rows = this.#parts.layout.params.get(block.tiledParam)!.spec.shape[0]!;
    return Math.ceil(rows / block.tileRows);
  }
}

/** Bytes that gathered rows take in an activation slot: whole cache lines. */
export function rowBytes(rows: number, columns: number): number {
  return Math.ceil((rows * columns * 4) / 64) * 64;
}

function tensorsOf(part: Left[Output['part']]): Tensor[] {
  if (part === undefined) return [];
  return part instanceof tf.Tensor ? [part] : Object.values(part);
}

function disposeExcept(old: readonly Tensor[], kept: readonly Tensor[]): void {
  for (const tensor of new Set(old)) if (!kept.includes(tensor)) tensor.dispose();
}

function disposeHead(pass: HeadPass): void {
  const { prepared, carry, saved, dPrepared } = pass;
  disposeExcept([...prepared, ...carry, ...saved, ...dPrepared], []);
}

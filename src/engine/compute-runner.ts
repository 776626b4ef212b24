/**
 * @file Runs the compute operations of a step plan on a device: the real one, or the meta device,
 * whose ledger then says what the plan needs.
 *
 * Operands are found by ComputeOperands, what operations leave is kept by ComputeOutputs, the head
 * runs by HeadPasses; here are the blocks that run whole.
 *
 * Owns the tensors of all of these, and the batch fields of the step.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { Block, BlockAux, ParamName, SequencePlace } from '../model/block.js';
import type { Compute, Operation, OperationId, Output } from '../plan/step-plan.js';
import { BatchFields } from './batch-fields.js';
import { extendDense, forwardDense, forwardRows, reverse, seedOf } from './block-compute.js';
import { ComputeOperands } from './compute-operands.js';
import { ComputeOutputs, type LeftShapes } from './compute-outputs.js';
import type { ComputeParts } from './compute-parts.js';
import { HeadPasses, TILE_GRADIENT } from './head-passes.js';
import { rowBytes } from './row-bytes.js';

type Action<K extends Compute['kind']> = Extract<Compute, { kind: K }>;

export class ComputeRunner {
  readonly #parts: ComputeParts;
  readonly #outputs: ComputeOutputs;
  readonly #operands: ComputeOperands;
  readonly #heads: HeadPasses;
  readonly #fields: BatchFields;
  #aux: readonly BlockAux[] = [];
  #place: SequencePlace | undefined;

  constructor(parts: ComputeParts) {
    this.#parts = parts;
    this.#outputs = new ComputeOutputs(parts.device);
    this.#operands = new ComputeOperands(parts, this.#outputs);
    this.#heads = new HeadPasses(parts, this.#operands, this.#outputs);
    this.#fields = new BatchFields(parts.device, parts.countUpload);
  }

  /**
   * Begins a step over the micro-batches that `aux` describes.
   *
   * @param place of the next tokens in their sequence, which are the only micro-batch then
   */
  begin(aux: readonly BlockAux[], place?: SequencePlace): void {
    assert(this.#outputs.isEmpty && this.#heads.isEmpty, 'the step before left nothing');
    this.#aux = aux;
    this.#place = place;
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
    return this.#outputs.part(operation, 'activation');
  }

  losses(operation: OperationId): Tensor {
    return this.#outputs.part(operation, 'losses');
  }

  added(operation: OperationId): readonly Tensor[] {
    return this.#outputs.part(operation, 'added');
  }

  logits(operation: OperationId): Tensor {
    return this.#outputs.part(operation, 'logits');
  }

  gradients(operation: OperationId): Readonly<Record<ParamName, Tensor>> {
    return this.#outputs.part(operation, 'gradients');
  }

  /** The gradient of a tile. */
  tileGradient(operation: OperationId): Tensor {
    return this.gradients(operation)[TILE_GRADIENT]!;
  }

  free(output: Output): void {
    this.#outputs.free(output);
  }

  /** Whether the batch fields that a block reads are on the device already. */
  hasFields(block: Block, microBatch: number): boolean {
    return this.#fields.has(block, this.#aux[microBatch]!, microBatch);
  }

  leftShapes(operation: OperationId): LeftShapes {
    return this.#outputs.shapes(operation);
  }

  /** Leaves zeros of `shapes` as what `id` left. For plans, where an equal operation has run. */
  leaveZeros(id: OperationId, { activation, gradients, losses }: LeftShapes): void {
    const zeros = (shape: readonly number[]): Tensor =>
      this.#parts.device.run(() => tf.fill([...shape], 0));
    this.#outputs.leave(id, {
      activation: activation && zeros(activation),
      gradients: Object.fromEntries(
        Object.entries(gradients).map(([name, shape]) => [name, zeros(shape)]),
      ),
      losses: losses && zeros(losses),
    });
  }

  /** Notes the shape of the input of `block`, which such an operation would have made. */
  noteActivation(block: number, microBatch: number, shape: readonly number[]): void {
    this.#parts.onActivation(block, microBatch, shape);
  }

  /** Frees everything that is left. */
  clear(): void {
    this.#outputs.clear();
    this.#heads.clear();
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
        this.#heads.forwardTile(action);
        return;
      case 'end':
        this.#heads.end(id, action);
        return;
      case 'backward-tile':
        this.#heads.backwardTile(id, action);
        return;
      case 'reverse-prepare':
        this.#heads.reversePrepare(id, action);
        return;
      case 'extend':
        this.#extend(id, action);
        return;
      case 'prepare-last':
        this.#heads.prepareLast(action, this.#tokenAux(action.microBatch));
        return;
      case 'logits-tile':
        this.#heads.logitsTile(id, action);
        return;
      default:
        return action satisfies never;
    }
  }

  async #rows(id: OperationId, { microBatch, offset }: Action<'rows'>): Promise<void> {
    const { device, region, blocks, layout } = this.#parts;
    const block = blocks[0]!;
    assert(block.kind === 'row', 'rows belong to a row block');
    const aux = await this.#auxOf(block, 0, microBatch);
    let start = offset;
    const rows = block.gathers.map((gather) => {
      const columns = layout.params.get(gather.param)!.spec.shape[1]!;
      const count = gather.indices(aux.fields, this.#place?.first).length;
      const view = region.view(start, [count, columns], 'float32');
      start += rowBytes(count, columns);
      return view;
    });
    try {
      this.#leaveActivation(id, 1, microBatch, forwardRows(device, block, rows, aux));
    } finally {
      for (const view of rows) view.dispose();
    }
  }

  async #forward(id: OperationId, action: Action<'forward'>): Promise<void> {
    const { device, blocks } = this.#parts;
    const { block: index, microBatch } = action;
    const block = blocks[index]!;
    assert(block.kind === 'dense', 'only dense blocks run forward as a whole');
    const aux = await this.#auxOf(block, index, microBatch);
    this.#operands.withParams(index, action.offset, (params) =>
      this.#operands.withSource(action.input, index, microBatch, (input) => {
        const output = forwardDense(device, block, params, input ? [input] : [], aux);
        if (index === blocks.length - 1) this.#outputs.leave(id, { losses: output });
        else this.#leaveActivation(id, index + 1, microBatch, output);
      }),
    );
  }

  #extend(id: OperationId, action: Action<'extend'>): void {
    const { device, blocks } = this.#parts;
    const { block: index, microBatch } = action;
    const block = blocks[index]!;
    const place = this.#place;
    assert(block.kind === 'dense' && place !== undefined, 'dense blocks extend sequences');
    this.#operands.withParams(index, action.offset, (params) =>
      this.#operands.withSource(action.input, index, microBatch, (input) =>
        this.#operands.withCached(index, place.first, action.cacheOffset, (cached) => {
          const inputs = input ? [input] : [];
          const { output, added } = extendDense(device, block, params, inputs, cached, place);
          this.#parts.onActivation(index + 1, microBatch, output.shape);
          this.#outputs.leave(id, { activation: output, added });
        }),
      ),
    );
  }

  async #reverse(id: OperationId, action: Action<'reverse'>): Promise<void> {
    const { device, blocks } = this.#parts;
    const { block: index, microBatch, dy } = action;
    const block = blocks[index]!;
    assert(block.kind === 'dense', 'only dense blocks are reversed as a whole');
    const aux = await this.#auxOf(block, index, microBatch);
    this.#operands.withParams(index, action.offset, (params) =>
      this.#operands.withSource(action.input, index, microBatch, (input) => {
        let losses: Tensor | undefined;
        const { dInput, dParams } = reverse(
          device,
          () => block.apply(params, input ? [input] : [], aux),
          params,
          this.#parts.trainableOf(block),
          input,
          (ys) => {
            if (dy !== undefined) return [this.#operands.takeSource(dy, index + 1, microBatch)];
            const seed = seedOf(block, ys, aux.lossScale);
            losses = seed.losses;
            return [seed.dy];
          },
        );
        const gradients = this.#outputs.added(action.sums, dParams);
        this.#outputs.leave(id, { activation: dInput, gradients, losses });
      }),
    );
  }

  async #reverseRows(id: OperationId, { microBatch, dy }: Action<'reverse-rows'>): Promise<void> {
    const { device, blocks } = this.#parts;
    const block = blocks[0]!;
    assert(block.kind === 'row', 'rows belong to a row block');
    const aux = await this.#auxOf(block, 0, microBatch);
    const gradient = this.#operands.takeSource(dy, 1, microBatch);
    const rows = device.run(() => block.backward(gradient, aux));
    if (!rows.includes(gradient)) gradient.dispose();
    const named = block.gathers.map(({ param }, index) => [param, rows[index]!] as const);
    this.#outputs.leave(id, { gradients: Object.fromEntries(named) });
  }

  async #prepare(action: Action<'prepare'>): Promise<void> {
    const index = this.#parts.blocks.length - 1;
    this.#heads.prepare(action, await this.#auxOf(this.#heads.block, index, action.microBatch));
  }

  /** What the head runs with for logits, which read no batch fields. */
  #tokenAux(microBatch: number): BlockAux {
    return { ...this.#aux[microBatch]!, block: this.#parts.blocks.length - 1 };
  }

  /** What a block runs with, its batch fields on the device. */
  async #auxOf(block: Block, index: number, microBatch: number): Promise<BlockAux> {
    const aux = { ...this.#aux[microBatch]!, block: index };
    return { ...aux, tensors: await this.#fields.of(block, aux, microBatch) };
  }

  #leaveActivation(id: OperationId, block: number, microBatch: number, tensor: Tensor): void {
    this.#parts.onActivation(block, microBatch, tensor.shape);
    this.#outputs.leave(id, { activation: tensor });
  }
}

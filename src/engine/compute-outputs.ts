/**
 * @file What compute operations left on the device, by their number, until the plan frees it.
 *
 * Owns these tensors; none of them aliases the region, which is filled again.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import type { Device } from '../../tiers/device/device.js';
import type { ParamName } from '../model/block.js';
import type { OperationId, Output } from '../plan/step-plan.js';
import { addTensors } from './block-compute.js';

type Gradients = Readonly<Record<ParamName, Tensor>>;

/** What an operation leaves. */
export interface Left {
  activation?: Tensor | undefined;
  gradients?: Gradients | undefined;
  losses?: Tensor | undefined;
  /** What a sequence keeps of its tokens. */
  added?: readonly Tensor[] | undefined;
  logits?: Tensor | undefined;
}

/** Shapes of what an operation left. */
export interface LeftShapes {
  readonly activation: readonly number[] | undefined;
  readonly gradients: Readonly<Record<ParamName, readonly number[]>>;
  readonly losses: readonly number[] | undefined;
}

type Part = Output['part'];

export class ComputeOutputs {
  readonly #device: Device;
  readonly #left = new Map<OperationId, Map<Part, Left[Part]>>();

  constructor(device: Device) {
    this.#device = device;
  }

  get isEmpty(): boolean {
    return this.#left.size === 0;
  }

  /** Takes over what `id` leaves; a part without tensors is none. */
  leave(id: OperationId, { activation, gradients = {}, losses, added = [], logits }: Left): void {
    // What aliases the region would change when that is filled again.
    const own = (tensor: Tensor): Tensor => this.#device.own(tensor);
    const left = new Map<Part, Left[Part]>();
    if (activation !== undefined) left.set('activation', own(activation));
    const owned = Object.entries(gradients).map(([name, tensor]) => [name, own(tensor)] as const);
    if (owned.length > 0) left.set('gradients', Object.fromEntries(owned));
    if (losses !== undefined) left.set('losses', own(losses));
    if (added.length > 0) left.set('added', added.map(own));
    if (logits !== undefined) left.set('logits', own(logits));
    if (left.size > 0) this.#left.set(id, left);
  }

  /** A part of what an operation left; it stays here. */
  part<P extends Part>(operation: OperationId, part: P): NonNullable<Left[P]> {
    const value = this.#left.get(operation)?.get(part);
    assert(value !== undefined, 'the output is there', { operation, part });
    return value as NonNullable<Left[P]>;
  }

  /** A part of what an operation left, for the caller to own. */
  take<P extends Part>(operation: OperationId, part: P): NonNullable<Left[P]> {
    const value = this.part(operation, part);
    const left = this.#left.get(operation)!;
    left.delete(part);
    if (left.size === 0) this.#left.delete(operation);
    return value;
  }

  free({ operation, part }: Output): void {
    for (const tensor of tensorsOf(this.take(operation, part))) tensor.dispose();
  }

  /** `added` by name to the gradients that `sums` left, in float32; consumes both. */
  added(sums: OperationId | undefined, added: Gradients): Record<ParamName, Tensor> {
    if (sums === undefined || Object.keys(added).length === 0) return { ...added };
    const before = this.take(sums, 'gradients');
    return Object.fromEntries(
      Object.entries(added).map(([name, tensor]) => {
        const sum = before[name];
        assert(sum !== undefined, 'every micro-batch has the same gradients', { name });
        return [name, addTensors(this.#device, sum, tensor)];
      }),
    );
  }

  shapes(operation: OperationId): LeftShapes {
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

  clear(): void {
    const parts = [...this.#left.values()].flatMap((left) => [...left.values()]);
    for (const tensor of parts.flatMap(tensorsOf)) tensor.dispose();
    this.#left.clear();
  }
}

function tensorsOf(part: Left[Part]): Tensor[] {
  if (part === undefined) return [];
  return part instanceof tf.Tensor ? [part] : Object.values(part);
}

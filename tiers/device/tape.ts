/**
 * @file The reverse pass: a tape walker over tfjs's gradient functions that frees as it goes.
 *
 * Stock `tf.grads` holds every saved tensor and every dy until the whole walk is done. This walker
 * gives the same bits (same nodes, same order of sums) and holds less:
 *
 * - an operation that does not depend on the differentiated tensors is never recorded; what tfjs
 *   saved for it is freed at once;
 * - after the forward pass, everything but the outputs and what some gradient saved is freed, and
 *   so are the saved tensors of operations that do not lead to an output;
 * - in the reverse pass, a node's saved tensors and the dys of its outputs are freed as soon as its
 *   input gradients exist, and a summand as soon as it has been added.
 *
 * During the forward pass itself tensors live as long as in `tf.tidy`, because user code may still
 * hold them: coarse operations (custom-op.ts) and `tf.tidy` inside bound that peak.
 *
 * Owns the tape and saved tensors of one forward pass; hands gradients and outputs to the caller.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { assert, SpillwayError } from '../../core/errors.js';
import { ensureGradients } from './gradients.js';
import { tapeEngine, type TapeEngine, type TapeNode } from './tape-engine.js';

/** A forward pass that can be walked back once. */
export interface Recording {
  /** What the function returned. Owned by the caller, who may dispose them before `backward`. */
  readonly ys: readonly Tensor[];
  /**
   * Gradients of the recorded `xs`, given those of `ys`.
   *
   * @param dys one float32 tensor of each output's shape; consumed: disposed after their last use
   * @returns one new float32 tensor per x; zeros where x does not influence any y
   * @throws GRADIENT_MISSING naming the kernel; BLOCK_INVALID when a gradient has a wrong shape or
   *   type. The recording is disposed then, and so are the dys.
   */
  backward(dys: readonly Tensor[]): Tensor[];
  /** Frees what the recording holds. Idempotent; `backward` does it too. */
  dispose(): void;
}

/** Options of `vjp`. */
export interface VjpOptions {
  /** Return the outputs as well, instead of freeing them before the reverse pass. */
  readonly keepOutputs?: boolean;
}

/** Gradients of `vjp`, and its outputs when they were asked for. The caller disposes them. */
export interface VjpResult {
  readonly grads: Tensor[];
  readonly ys?: Tensor[];
}

/**
 * Vector-Jacobian product: runs `f` and walks it back.
 *
 * @param f returns the outputs; need not dispose anything
 * @param xs tensors that `f` reads, with respect to which gradients are wanted
 * @param dys gradients of the outputs, new tensors that this function consumes (return `tf.clone`
 *   of one that must live on); called after the forward pass
 * @throws GRADIENT_MISSING, BLOCK_INVALID as `Recording.backward`; whatever `f` throws. Nothing
 *   stays allocated then.
 */
export function vjp(
  f: () => Tensor[],
  xs: readonly Tensor[],
  dys: (ys: readonly Tensor[]) => Tensor[],
  options: VjpOptions = {},
): VjpResult {
  const firstId = tapeEngine().nextTensorId();
  const recording = forwardWithTape(f, xs);
  const freeOutputs = (): void => {
    // An output may be a tensor that f did not make (an x, say): that one is not ours to free.
    for (const y of recording.ys) if (y.id > firstId) y.dispose();
  };
  try {
    const outputGradients = dys(recording.ys);
    if (options.keepOutputs !== true) freeOutputs();
    const grads = recording.backward(outputGradients);
    return options.keepOutputs === true ? { grads, ys: [...recording.ys] } : { grads };
  } catch (error) {
    freeOutputs();
    recording.dispose();
    throw error;
  }
}

/**
 * Runs `f` and records what the gradients of `xs` need.
 *
 * @throws INTERNAL inside another tape; whatever `f` throws, with nothing left allocated
 */
export function forwardWithTape(f: () => Tensor[], xs: readonly Tensor[]): Recording {
  ensureGradients();
  const engine = tapeEngine();
  const { state } = engine;
  assert(
    state.gradientDepth === 0 && state.kernelDepth === 0,
    'a forward pass cannot be recorded inside another tape or kernel',
  );
  const tape = new PruningTape(engine, xs);
  engine.startTape();
  state.activeTape = tape;
  let ys: Tensor[];
  try {
    ys = tf.tidy('spillway.forward', f);
  } catch (error) {
    tape.dispose();
    throw error;
  } finally {
    engine.endTape();
    state.activeTape = null;
  }
  return new TapeRecording(tape.nodesLeadingTo(ys), xs, ys);
}

/** An array as tfjs's engine needs it that records only what depends on the given tensors. */
class PruningTape extends Array<TapeNode> {
  /** `push` and `concat` of a subclass would otherwise construct more of its kind. */
  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }

  readonly #engine: TapeEngine;
  /** Ids of the xs and of all tensors computed from them. */
  readonly #dependent: Set<number>;

  constructor(engine: TapeEngine, xs: readonly Tensor[]) {
    super();
    this.#engine = engine;
    this.#dependent = new Set(xs.map((x) => x.id));
  }

  override push(node: TapeNode): number {
    if (Object.values(node.inputs).some((input) => this.#dependent.has(input.id))) {
      for (const output of node.outputs) this.#dependent.add(output.id);
      return super.push(node);
    }
    // Deeper, tf.grads inside f reads this tape and differentiates with respect to other tensors.
    if (this.#engine.state.gradientDepth > 1) return super.push(node);
    disposeSaved(node);
    return this.length;
  }

  /** The nodes on a path from the xs to `ys`, with their other inputs left out; frees the rest. */
  nodesLeadingTo(ys: readonly Tensor[]): TapeNode[] {
    const leading = new Set(ys.map((y) => y.id));
    const kept: TapeNode[] = [];
    for (const node of this.toReversed()) {
      const inputs = Object.entries(node.inputs).filter(([, x]) => this.#dependent.has(x.id));
      if (inputs.length === 0 || !node.outputs.some((output) => leading.has(output.id))) {
        disposeSaved(node);
        continue;
      }
      for (const input of Object.values(node.inputs)) leading.add(input.id);
      kept.push({ ...node, inputs: Object.fromEntries(inputs) });
    }
    return kept.reverse();
  }

  dispose(): void {
    this.forEach(disposeSaved);
  }
}

class TapeRecording implements Recording {
  readonly ys: readonly Tensor[];
  readonly #xs: readonly Tensor[];
  /** In tape order; the walk pops from its end. */
  readonly #nodes: TapeNode[];
  /** Gradients summed so far, by tensor id. */
  readonly #gradients = new Map<number, Tensor>();
  #used = false;

  constructor(nodes: TapeNode[], xs: readonly Tensor[], ys: readonly Tensor[]) {
    this.#nodes = nodes;
    this.#xs = xs;
    this.ys = ys;
  }

  backward(dys: readonly Tensor[]): Tensor[] {
    assert(!this.#used, 'a recording is walked back once');
    this.#used = true;
    try {
      return this.#walk(dys);
    } catch (error) {
      for (const dy of dys) dy.dispose();
      throw error;
    } finally {
      this.dispose();
    }
  }

  dispose(): void {
    this.#used = true;
    for (const node of this.#nodes.splice(0)) disposeSaved(node);
    for (const gradient of this.#gradients.values()) gradient.dispose();
    this.#gradients.clear();
  }

  #walk(dys: readonly Tensor[]): Tensor[] {
    this.#seed(dys);
    for (let node = this.#nodes.at(-1); node !== undefined; node = this.#nodes.at(-1)) {
      this.#step(node);
      this.#nodes.pop();
    }
    return tf.tidy(() => this.#xs.map((x) => this.#result(x)));
  }

  #seed(dys: readonly Tensor[]): void {
    assert(dys.length === this.ys.length, 'one dy per output', {
      outputs: this.ys.length,
      dys: dys.length,
    });
    for (const [index, y] of this.ys.entries()) {
      const dy = dys[index]!;
      checkGradient(dy, y, 'output', `${index}`);
      // The caller may hand in one tensor for several outputs: each entry owns its own handle.
      this.#add(y, tf.clone(dy));
    }
    for (const dy of dys) dy.dispose();
  }

  /** Turns the dys of one node's outputs into gradients of its inputs. */
  #step(node: TapeNode): void {
    const { gradient } = node;
    if (gradient === undefined) {
      throw new SpillwayError(
        'GRADIENT_MISSING',
        `no gradient is known for kernel ${node.kernelName}; use other operations or tf.customGrad`,
        { kernel: node.kernelName },
      );
    }
    const dys = node.outputs.map((output) => this.#gradients.get(output.id) ?? null);
    const names = Object.keys(node.inputs);
    const dxs = tf.tidy('spillway.backward', () => {
      const named = gradient(dys);
      return names.map((name) => inputGradient(node, name, named));
    });
    disposeSaved(node);
    for (const output of node.outputs) {
      this.#gradients.get(output.id)?.dispose();
      this.#gradients.delete(output.id);
    }
    try {
      for (const [index, name] of names.entries()) this.#add(node.inputs[name]!, dxs[index]!);
    } catch (error) {
      for (const dx of dxs) dx.dispose();
      throw error;
    }
  }

  /** Adds `dx` to the gradient of `x` and owns it from now on. */
  #add(x: Tensor, dx: Tensor): void {
    const current = this.#gradients.get(x.id);
    if (current === undefined) {
      this.#gradients.set(x.id, dx);
      return;
    }
    this.#gradients.set(x.id, tf.add(current, dx));
    current.dispose();
    dx.dispose();
  }

  /** The gradient of `x`, as a new tensor: an x may be listed twice. */
  #result(x: Tensor): Tensor {
    const gradient = this.#gradients.get(x.id);
    return gradient === undefined ? tf.fill(x.shape, 0) : tf.clone(gradient);
  }
}

/** A new handle on the gradient of one input, so that freeing a dy or saved tensor cannot hurt it. */
function inputGradient(
  node: TapeNode,
  name: string,
  named: Readonly<Record<string, (() => Tensor) | undefined>>,
): Tensor {
  const compute = named[name];
  if (compute === undefined) {
    throw new SpillwayError(
      'GRADIENT_MISSING',
      `kernel ${node.kernelName} has no gradient for its input ${name}; use other operations`,
      { kernel: node.kernelName, input: name },
    );
  }
  return tf.tidy(() => {
    const dx = compute();
    checkGradient(dx, node.inputs[name]!, node.kernelName, name);
    return tf.clone(dx);
  });
}

function checkGradient(gradient: Tensor, of: Tensor, kernel: string, name: string): void {
  const fits =
    gradient.dtype === 'float32' &&
    gradient.shape.length === of.shape.length &&
    gradient.shape.every((size, axis) => size === of.shape[axis]);
  if (fits) return;
  throw new SpillwayError(
    'BLOCK_INVALID',
    `the gradient for ${kernel} ${name} must be float32 of shape [${of.shape.join(', ')}]`,
    { kernel, name, dtype: gradient.dtype, shape: `[${gradient.shape.join(', ')}]` },
  );
}

function disposeSaved(node: TapeNode): void {
  for (const tensor of node.saved ?? []) tensor.dispose();
}

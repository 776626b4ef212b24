// Goal: ten AdamW steps with accumulation, clipping and a schedule have float64 torch's losses.
// The optimizer here is a plain formula in double; the engine's own is compared elsewhere.
import * as tf from '@tensorflow/tfjs-core';
import { expect, it } from 'vitest';
import { useCpuBackend } from '../device/tfjs-setup.js';
import { runChain } from './block-chain.js';
import {
  batchOf,
  loadFixture,
  weightTensors,
  type FixtureModel,
  type Reference,
} from './fixture-model.js';

const TOLERANCE = 1e-5;

interface State {
  readonly values: Float32Array;
  readonly expAvg: Float64Array;
  readonly expAvgSq: Float64Array;
  readonly decay: boolean;
}

useCpuBackend();

function update(
  state: State,
  gradient: Float64Array,
  step: number,
  factor: number,
  training: Reference['training'],
): void {
  const { adam_beta1: beta1, adam_beta2: beta2, adam_epsilon: epsilon } = training;
  const rate = training.learning_rates[step]!;
  const shrink = state.decay ? 1 - rate * training.weight_decay : 1;
  const correction1 = 1 - beta1 ** (step + 1);
  const correction2 = Math.sqrt(1 - beta2 ** (step + 1));
  const { values, expAvg, expAvgSq } = state;
  for (let i = 0; i < values.length; i += 1) {
    const g = gradient[i]! * factor;
    expAvg[i] = beta1 * expAvg[i]! + (1 - beta1) * g;
    expAvgSq[i] = beta2 * expAvgSq[i]! + (1 - beta2) * g * g;
    const denominator = Math.sqrt(expAvgSq[i]!) / correction2 + epsilon;
    values[i] = values[i]! * shrink - ((rate / correction1) * expAvg[i]!) / denominator;
  }
}

/** Losses and gradient norms of the reference's training run. */
function train(fixture: FixtureModel): { losses: number[]; norms: number[] } {
  const { training } = fixture.reference;
  const specs = fixture.model.blocks.flatMap((block) => block.owns);
  const states = new Map<string, State>();
  for (const { name, decay } of specs) {
    const { values } = fixture.weights.get(name)!;
    const [expAvg, expAvgSq] = [new Float64Array(values.length), new Float64Array(values.length)];
    states.set(name, { values, expAvg, expAvgSq, decay });
  }
  const losses: number[] = [];
  const norms: number[] = [];
  for (const [step, stored] of training.micro_batches.entries()) {
    const batches = stored.map(batchOf);
    const scale = 1 / batches.reduce((total, batch) => total + batch.weight, 0);
    const params = weightTensors(fixture);
    const results = batches.map((batch) => runChain(fixture.model.blocks, params, batch, scale));
    tf.dispose(params);
    const terms = results.flatMap((result) => [...result.losses]);
    losses.push(terms.reduce((total, term) => total + term, 0) * scale);
    const sums = new Map<string, Float64Array>();
    for (const name of states.keys()) {
      const parts = results.map((result) => result.gradients.get(name)!);
      sums.set(
        name,
        parts[0]!.map((_, i) => parts.reduce((total, part) => total + part[i]!, 0)),
      );
    }
    const squares = [...sums.values()].flatMap((values) => [
      ...values.map((value) => value * value),
    ]);
    const norm = Math.sqrt(squares.reduce((total, square) => total + square, 0));
    norms.push(norm);
    const factor = Math.min(1, training.max_grad_norm / (norm + 1e-6));
    for (const [name, state] of states) update(state, sums.get(name)!, step, factor, training);
  }
  return { losses, norms };
}

it.each(['gpt2-tiny', 'llama-tiny-untied', 'llama-yarn-tiny', 'qwen3-tiny'])(
  '%s loses as float64 torch does',
  async (name) => {
    const fixture = await loadFixture(name);
    const { training } = fixture.reference;
    const { losses, norms } = train(fixture);
    const errorOf = (actual: number[], expected: readonly number[]): number =>
      Math.max(...expected.map((value, step) => Math.abs(actual[step]! / value - 1)));
    expect(losses).toHaveLength(training.losses.length);
    expect(errorOf(losses, training.losses)).toBeLessThan(TOLERANCE);
    expect(errorOf(norms, training.grad_norms)).toBeLessThan(10 * TOLERANCE);
  },
);

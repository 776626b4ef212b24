// Goal: the built-in models compute what float64 torch computes: logits, loss, every gradient.
import * as tf from '@tensorflow/tfjs-core';
import { describe, expect, it } from 'vitest';
import type { Block, TiledBlock } from '../../src/model/block.js';
import { NativeBackend } from '../../tiers/device/native/native-backend.js';
import { BACKENDS, useBackend } from './backends.js';
import { chainLogits, runChain } from './block-chain.js';
import {
  batchOf,
  fixturesBy,
  loadFixture,
  relativeError,
  weightTensors,
  type FixtureModel,
} from './fixture-model.js';

const TOLERANCE = 1e-5;

/** The chain with a head of several tiles, the last one smaller. */
function withTileRows(blocks: readonly Block[], tileRows: number): Block[] {
  const head = blocks.at(-1) as TiledBlock;
  return [...blocks.slice(0, -1), { ...head, tileRows }];
}

function sum(values: Float32Array): number {
  return values.reduce((total, value) => total + value, 0);
}

function compareGradients(fixture: FixtureModel, blocks: readonly Block[]): void {
  const params = weightTensors(fixture);
  const batch = batchOf(fixture.reference);
  const { losses, gradients } = runChain(blocks, params, batch, 1 / batch.weight);
  tf.dispose(params);
  expect(batch.weight).toBe(fixture.reference.loss_terms);
  expect(Math.abs(sum(losses) / batch.weight / fixture.reference.loss - 1)).toBeLessThan(TOLERANCE);
  const expected = [...fixture.tensors.keys()].filter((name) => name.startsWith('grad.'));
  expect([...gradients.keys()].map((name) => `grad.${name}`).sort()).toEqual(expected.sort());
  for (const [name, gradient] of gradients) {
    const error = relativeError(gradient, fixture.tensors.get(`grad.${name}`)!);
    expect(error, name).toBeLessThan(TOLERANCE);
  }
}

const CASES = fixturesBy(BACKENDS.toReversed(), 8);

describe.each(CASES)('%s on %s', (name, backend) => {
  useBackend(backend);

  it('has the logits of float64 torch', async () => {
    const fixture = await loadFixture(name);
    const params = weightTensors(fixture);
    const logits = chainLogits(fixture.model.blocks, params, batchOf(fixture.reference));
    const error = relativeError(logits.dataSync(), fixture.tensors.get('logits')!);
    tf.dispose([params, logits]);
    expect(error).toBeLessThan(TOLERANCE);
  });

  it('has the loss and every gradient of float64 torch with the head in one tile', async () => {
    const fixture = await loadFixture(name);
    compareGradients(fixture, fixture.model.blocks);
  });

  it('has the loss and every gradient of float64 torch with the head in four tiles', async () => {
    const fixture = await loadFixture(name);
    compareGradients(fixture, withTileRows(fixture.model.blocks, 40));
  });

  it('leaves no tensor behind', async () => {
    const fixture = await loadFixture(name);
    const params = weightTensors(fixture);
    const before = tf.memory();
    runChain(fixture.model.blocks, params, batchOf(fixture.reference), 1);
    const after = tf.memory();
    tf.dispose(params);
    expect([after.numTensors, after.numBytes]).toEqual([before.numTensors, before.numBytes]);
  });

  it.runIf(backend === 'native')('runs every kernel in C++', async () => {
    const fixture = await loadFixture(name);
    const params = weightTensors(fixture);
    runChain(fixture.model.blocks, params, batchOf(fixture.reference), 1);
    tf.dispose(params);
    const used = tf.backend();
    expect(used).toBeInstanceOf(NativeBackend);
    expect(used).toHaveProperty('fallbackCounts', new Map());
  });
});

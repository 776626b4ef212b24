/**
 * @file A decoder block on the native device beside torch: forward pass, recomputation and backward
 * pass, as a training step runs it (torch.utils.checkpoint does the same).
 *
 * Rounds alternate between this process and a persistent torch process on the same number of
 * threads. `ratio` is our time over torch's: below 1 we are faster. `weightGflops` counts the products
 * with weights only, all of which `bench -- gemm` times alone.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { silentLogger } from '../core/logger.js';
import { forwardDense, reverse } from '../src/engine/block-compute.js';
import type { BlockAux, DenseBlock } from '../src/model/block.js';
import { modelFromConfig } from '../src/model/model-from-config.js';
import { createDevice } from '../tiers/device/create-device.js';
import type { Device } from '../tiers/device/device.js';
import { deviceThreads } from '../tiers/device/native/device-threads.js';
import { TorchProcess } from './peer/torch-process.js';

interface Case {
  readonly model: 'gpt2' | 'llama';
  readonly length: number;
  readonly hidden: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly inner: number;
}

const GPT2_SMALL = { model: 'gpt2', hidden: 768, heads: 12, keyHeads: 12, inner: 3072 } as const;
const LLAMA_1B = { model: 'llama', hidden: 2048, heads: 32, keyHeads: 4, inner: 5632 } as const;

const CASES: readonly Case[] = [GPT2_SMALL, LLAMA_1B].flatMap((block) =>
  [128, 512].map((length) => ({ ...block, length })),
);

const ROUNDS = 9;
/** A round's length: long beside a timer's error. */
const ROUND_SECONDS = 0.1;
/** torch's threads spin for some milliseconds after their work. */
const PAUSE_MS = 5;
/** Room for the largest case: parameters, gradients and activations of a 1 B-Llama-shaped block. */
const DEVICE_BYTES = 1.5 * 2 ** 30;

const AUX: BlockAux = {
  fields: {},
  tensors: {},
  lossScale: 1,
  seed: 0,
  step: 0,
  microBatch: 0,
  block: 1,
};

const median = (values: number[]) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)]!;

function decoderLayer({ model, hidden, heads, keyHeads, inner, length }: Case): DenseBlock {
  const config =
    model === 'gpt2'
      ? { n_embd: hidden, n_head: heads, n_inner: inner, n_layer: 1, n_positions: length }
      : {
          hidden_size: hidden,
          num_attention_heads: heads,
          num_key_value_heads: keyHeads,
          intermediate_size: inner,
          num_hidden_layers: 1,
        };
  const options = { strict: true, logger: silentLogger };
  const full = { model_type: model, vocab_size: 8, ...config };
  return modelFromConfig(full, options).blocks[1] as DenseBlock;
}

/** Weights of the block's matrices: a token costs two operations for each, forward. */
function matrixElements(block: DenseBlock): number {
  return block.owns
    .filter(({ shape }) => shape.length === 2)
    .reduce((sum, { shape }) => sum + shape[0]! * shape[1]!, 0);
}

/** One forward pass, recomputation and backward pass; resolves when the device is done. */
function ours(device: Device, block: DenseBlock, each: Case): () => Promise<void> {
  const shape = [1, each.length, each.hidden];
  const { params, x, dy } = device.run(() => {
    const params: Record<string, Tensor> = {};
    for (const spec of block.owns) params[spec.name] = tf.randomNormal([...spec.shape], 0, 0.02);
    return { params, x: tf.randomNormal(shape), dy: tf.randomNormal(shape) };
  });
  return async () => {
    const output = forwardDense(device, block, params, [x], AUX);
    output.dispose();
    const { dInput, dParams } = reverse(
      device,
      () => block.apply(params, [x], AUX),
      params,
      block.uses,
      x,
      () => [tf.clone(dy)],
    );
    tf.dispose([dInput!, ...Object.values(dParams)]);
    await device.synchronize();
  };
}

async function seconds(run: () => Promise<void>, repeats: number): Promise<number> {
  const start = process.hrtime.bigint();
  for (let i = 0; i < repeats; i++) await run();
  return Number(process.hrtime.bigint() - start) / 1e9 / repeats;
}

async function benchCase(
  each: Case,
  threads: number,
  torch: TorchProcess | undefined,
): Promise<void> {
  const device = await createDevice('native', { budgetBytes: DEVICE_BYTES });
  const block = decoderLayer(each);
  const run = ours(device, block, each);
  await run();
  const repeats = Math.ceil(ROUND_SECONDS / (await seconds(run, 1)));
  await torch?.ask({ threads, ...each });
  const [times, peers]: [number[], number[]] = [[], []];
  const steps = [
    async () => times.push(await seconds(run, repeats)),
    async () => {
      if (torch === undefined) return;
      peers.push((await torch.ask({ repeats }))['seconds']!);
      await sleep(PAUSE_MS);
    },
  ];
  for (let round = 0; round < ROUNDS; round++) {
    // Which of the two goes first changes from round to round.
    for (const step of round % 2 === 0 ? steps : steps.toReversed()) await step();
  }
  await device.dispose();
  const round3 = (value: number) => Number(value.toPrecision(3));
  const peer =
    torch === undefined
      ? { torch: 'skipped: no torch' }
      : {
          ratio: round3(median(times.map((time, i) => time / peers[i]!))),
          torchMs: round3(1e3 * median(peers)),
        };
  // Forward, recomputation, and two products per weight in reverse.
  const gigaflop = 1e-9 * 4 * 2 * each.length * matrixElements(block);
  const ms = 1e3 * median(times);
  const line = {
    case: `block ${each.model} C=${each.hidden} T=${each.length}`,
    threads,
    ...peer,
    ms: round3(ms),
    weightGflops: round3((1e3 * gigaflop) / ms),
    rounds: ROUNDS,
  };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** `SPILLWAY_THREADS` sets the number of threads of both; default: the cores. */
export default async function benchBlock(): Promise<void> {
  const torch = TorchProcess.start(fileURLToPath(new URL('block_torch.py', import.meta.url)));
  for (const each of CASES) await benchCase(each, deviceThreads(), torch);
  await torch?.close();
}

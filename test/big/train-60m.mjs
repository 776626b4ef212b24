/**
 * @file Child process of train-60m.test.ts: trains a seeded 60 M-parameter GPT-2 for three steps
 * under the budgets given as arguments and prints, as JSON, what the engine counted and what the
 * kernel counted for this process. Runs the built library, as a user's program would.
 *
 * usage: node train-60m.mjs DEVICE HOST NVME_PATH DEVICE_NAME
 */
import { readFileSync } from 'node:fs';
import { Engine, defineModel, languageModelBatch, modelFromConfig } from 'spillway';

const [deviceMemory, hostMemory, nvmePath, device] = process.argv.slice(2);

/** The kernel's count of bytes that this process caused to be read from and written to disks. */
function kernelBytes() {
  const text = readFileSync('/proc/self/io', 'utf8');
  const field = (name) => Number(new RegExp(`^${name}: (\\d+)$`, 'm').exec(text)?.[1]);
  return { read: field('read_bytes'), write: field('write_bytes') };
}

// 62.9 M parameters, 960 MiB of state: 37.8 M in 12 layers of 512, the rest in the vocabulary.
const { name, blocks } = modelFromConfig(
  {
    model_type: 'gpt2',
    vocab_size: 48_768,
    n_positions: 256,
    n_embd: 512,
    n_layer: 12,
    n_head: 8,
    activation_function: 'gelu_new',
  },
  { strict: false, logger: { info: () => undefined, warn: () => undefined } },
);
const T = 16;
const batchOf = (step) => {
  const ids = Array.from({ length: T }, (_, t) => (t * 2_654_435 + step * 7919) % 48_768);
  return languageModelBatch({ inputIds: ids, labels: ids, batchSize: 1, length: T });
};

const before = kernelBytes();
const engine = await Engine.create({
  model: defineModel({ name, blocks, seed: 1 }),
  exampleBatch: batchOf(0),
  device,
  deviceMemory,
  hostMemory,
  nvmePath,
  optimizer: { learningRate: 1e-3 },
});
const losses = [];
const started = performance.now();
for (let step = 0; step < 3; step += 1) losses.push((await engine.step([batchOf(step)])).loss);
await engine.drain();
const after = kernelBytes();
console.log(
  JSON.stringify({
    parameters: engine.parameterCount,
    stateBytes: engine.stateBytes,
    losses,
    stepSeconds: (performance.now() - started) / 3000,
    peakBytes: engine.peakBytes,
    budgetBytes: engine.budgetBytes,
    bytesMoved: engine.bytesMoved,
    kernelRead: after.read - before.read,
    kernelWritten: after.write - before.write,
    peakRssBytes: process.resourceUsage().maxRSS * 1024,
  }),
);
await engine.close();

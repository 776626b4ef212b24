/**
 * @file Child process of gpt2-small.test.ts: trains a seeded GPT-2-small (124 M parameters, 50,257
 * tokens) at T = 512 on the native device and watches the event loop of this process.
 *
 * usage: node gpt2-small.mjs DEVICE_MEMORY HOST_MEMORY NVME_PATH STEPS
 */
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { Engine, defineModel, languageModelBatch, modelFromConfig } from 'spillway';
import { CommandQueues } from '../../dist/tiers/device/native/command-queues.js';

const [deviceMemory, hostMemory, nvmePath, steps] = process.argv.slice(2);
const T = 512;

/** Percentiles of the event-loop delay during `body`, in milliseconds, at a resolution of 1 ms. */
async function delayDuring(body) {
  const histogram = monitorEventLoopDelay({ resolution: 1 });
  histogram.enable();
  await body();
  histogram.disable();
  return {
    p50: histogram.percentile(50) / 1e6,
    p99: histogram.percentile(99) / 1e6,
    max: histogram.max / 1e6,
  };
}

let longestLaunchMs = 0;
let launchCount = 0;
const launch = CommandQueues.prototype.launch;
CommandQueues.prototype.launch = function (...args) {
  const started = performance.now();
  const result = launch.apply(this, args);
  longestLaunchMs = Math.max(longestLaunchMs, performance.now() - started);
  launchCount += 1;
  return result;
};

const { name, blocks } = modelFromConfig(
  {
    model_type: 'gpt2',
    vocab_size: 50_257,
    n_positions: 1024,
    n_embd: 768,
    n_layer: 12,
    n_head: 12,
    activation_function: 'gelu_new',
  },
  { strict: false, logger: { info: () => undefined, warn: () => undefined } },
);
const batchOf = (step) => {
  const ids = Array.from({ length: T }, (_, t) => (t * 2_654_435 + step * 7919) % 50_257);
  return languageModelBatch({ inputIds: ids, labels: ids, batchSize: 1, length: T });
};
const engine = await Engine.create({
  model: defineModel({ name, blocks, seed: 1 }),
  exampleBatch: batchOf(0),
  device: 'native',
  deviceMemory,
  hostMemory,
  nvmePath,
  optimizer: { learningRate: 1e-4 },
});
const losses = [];
losses.push((await engine.step([batchOf(0)])).loss);
await engine.drain();
const idle = await delayDuring(() => sleep(3000));
const started = performance.now();
const busy = await delayDuring(async () => {
  for (let step = 1; step <= Number(steps); step += 1) {
    losses.push((await engine.step([batchOf(0)])).loss);
  }
  await engine.drain();
});
console.log(
  JSON.stringify({
    parameters: engine.parameterCount,
    losses,
    idle,
    busy,
    longestLaunchMs,
    launchCount,
    stepSeconds: (performance.now() - started) / 1000 / Number(steps),
    cpuFallbacks: engine.cpuFallbacks,
    peakBytes: engine.peakBytes,
    bytesMoved: engine.bytesMoved,
    peakRssBytes: process.resourceUsage().maxRSS * 1024,
  }),
);
await engine.close();

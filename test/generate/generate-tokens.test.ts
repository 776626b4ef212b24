// Goal: generation ends at an abort that comes from outside, also on a device that never waits.
import { expect, it } from 'vitest';
import { generateTokens, type SequenceModel } from '../../src/generate/generate-tokens.js';

it('hears an abort between tokens that are computed without a pause', async () => {
  const model: SequenceModel = {
    restart: () => Promise.resolve(),
    append: () => Promise.resolve(Float32Array.of(0, 1)),
  };
  const settings = {
    ...{ maxNewTokens: 100_000, doSample: false, temperature: 1, topK: 0, topP: 1 },
    ...{ repetitionPenalty: 1, seed: 0, eosTokenIds: [] },
  };
  const controller = new AbortController();
  // Signals arrive as this does: in a turn of the event loop of their own.
  setImmediate(() => controller.abort());
  const limits = { maxLength: Infinity, signal: controller.signal };
  const tokens = generateTokens(model, [0], settings, limits);
  let count = 0;
  let step = await tokens.next();
  for (; step.done !== true; step = await tokens.next()) count += 1;
  expect(step.value).toBe('interrupted');
  expect(count).toBeLessThan(10);
});

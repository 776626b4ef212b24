/**
 * @file Fine-tunes a Hugging Face checkpoint through the library.
 *
 * The text is this very file: each character's code is its token, which is what a byte-level
 * vocabulary gives for ASCII. Prints one JSON line per logged step and one at the end.
 *
 * Run: node --import tsx examples/fine-tune.ts [MODEL_FOLDER] [OUTPUT_FOLDER]
 * Without arguments a tiny model of fixtures/ is tuned and the result is thrown away.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Engine, languageModelBatch, loadPretrained, lrFactor, type MicroBatch } from 'spillway';

/** Sequences per micro-batch, tokens per sequence, micro-batches per step, steps. */
const B = 2;
const T = 24;
const MICRO_BATCH_COUNT = 2;
const STEP_COUNT = 20;
const LEARNING_RATE = 1e-2;

const temporary = mkdtempSync(join(tmpdir(), 'spillway-fine-tune-'));
const tinyModel = fileURLToPath(new URL('../fixtures/gpt2-tiny', import.meta.url));
const [modelFolder = tinyModel, outputFolder = join(temporary, 'model')] = process.argv.slice(2);
const text = readFileSync(fileURLToPath(import.meta.url), 'latin1');

/** Micro-batch `index` of the text; positions wrap around. */
function makeBatch(index: number): MicroBatch {
  const inputIds = Int32Array.from({ length: B * T }, (_, i) =>
    text.charCodeAt((index * B * T + i) % text.length),
  );
  // Labels are not shifted: position t predicts labels[t + 1]. -100 masks a label.
  return languageModelBatch({ inputIds, labels: inputIds, batchSize: B, length: T });
}

const model = await loadPretrained(modelFolder);
const engine = await Engine.create({
  model,
  exampleBatch: makeBatch(0),
  deviceMemory: '32MiB',
  hostMemory: '64MiB',
  nvmePath: join(temporary, 'nvme'),
  // Everything fits, so the states are sent to files by request.
  offloadParam: 'nvme',
  offloadOptimizer: 'nvme',
  gradientAccumulationSteps: MICRO_BATCH_COUNT,
  optimizer: { weightDecay: 0.01, maxGradNorm: 1 },
});
try {
  const heldOut = [makeBatch(STEP_COUNT * MICRO_BATCH_COUNT)];
  const before = await engine.evaluate(heldOut);
  const schedule = { type: 'cosine', warmupSteps: 3, totalSteps: STEP_COUNT } as const;
  for (let step = 0; step < STEP_COUNT; step += 1) {
    const batches = Array.from({ length: MICRO_BATCH_COUNT }, (_, microBatch) =>
      makeBatch(step * MICRO_BATCH_COUNT + microBatch),
    );
    const learningRate = LEARNING_RATE * lrFactor(schedule, step);
    // Resolves after backward; the update of the weights goes on while the next batch is made.
    const { loss, gradNorm } = await engine.step(batches, { learningRate });
    if (step % 5 === 0) console.log(JSON.stringify({ step: step + 1, loss, gradNorm }));
  }
  const after = await engine.evaluate(heldOut);
  // A folder that transformers' from_pretrained loads.
  await engine.save(outputFolder);
  const { peakBytes, budgetBytes, bytesMoved } = engine;
  console.log(
    JSON.stringify({
      lossBefore: before.loss,
      lossAfter: after.loss,
      peakBytes,
      budgetBytes,
      bytesMoved,
    }),
  );
} finally {
  await engine.close();
  await model.close();
  rmSync(temporary, { recursive: true });
}

// Goal: what the meta device says a block needs is what the native device measures, byte for byte.
import { join } from 'node:path';
import * as tf from '@tensorflow/tfjs-core';
import { describe, expect, test } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import { probeWorkspaces } from '../../src/engine/workspace-probe.js';
import type { Block } from '../../src/model/block.js';
import { defineBlock } from '../../src/model/define-block.js';
import { languageModelBatch } from '../../src/model/language-model-batch.js';
import { modelFromConfig } from '../../src/model/model-from-config.js';
import { layoutParameters } from '../../src/plan/parameter-layout.js';
import { createMetaDevice } from '../../tiers/device/create-device.js';
import { NativeDevice } from '../../tiers/device/native/native-device.js';
import { native } from '../../tiers/native/binding.js';
import { readFileSync } from 'node:fs';

const FIXTURES = join(import.meta.dirname, '../../fixtures');
const NO_ADDON = native() === undefined;

function blocksOf(fixture: string): readonly Block[] {
  const text = readFileSync(join(FIXTURES, fixture, 'config.json'), 'utf8');
  return modelFromConfig(JSON.parse(text), { strict: false, logger: silentLogger }).blocks;
}

function batchOf(batchSize: number, length: number, packed: boolean) {
  const tokens = new Int32Array(batchSize * length);
  const documents = tokens.map((_, index) => (index % length < length / 2 ? 0 : 1));
  return languageModelBatch({
    inputIds: tokens,
    labels: tokens,
    batchSize,
    length,
    ...(packed ? { documents } : {}),
  });
}

describe.skipIf(NO_ADDON)('a workspace probe', () => {
  test.each(
    ['gpt2-tiny', 'llama-tiny', 'llama-tiny-untied'].flatMap((fixture) =>
      (['float32', 'bfloat16'] as const).flatMap((dtype) =>
        [false, true].map((packed) => ({ fixture, dtype, packed })),
      ),
    ),
  )('agrees for $fixture in $dtype, packed: $packed', async ({ fixture, dtype, packed }) => {
    const blocks = blocksOf(fixture);
    const layout = layoutParameters(blocks, 4096);
    const device = NativeDevice.create({ budgetBytes: 2 ** 28, threads: 1 });
    const meta = createMetaDevice(device)!;
    const batch = batchOf(2, 24, packed);
    const expected = probeWorkspaces(device, blocks, layout, batch, dtype);
    expect(probeWorkspaces(meta, blocks, layout, batch, dtype)).toEqual(expected);
    expect(expected.slice(0, -1).every((profile) => profile.outputBytes > 0)).toBe(true);
    expect(meta.ledger.liveCount).toBe(0);
    await device.dispose();
    await meta.dispose();
  });

  test('refuses a block that reads values, and agrees for one without native kernels', async () => {
    const block = (apply: (x: tf.Tensor) => tf.Tensor) =>
      defineBlock({
        name: 'own',
        params: { w: { shape: [7, 5] } },
        apply: ({ w }) => apply(w!),
      });
    const device = NativeDevice.create({ budgetBytes: 2 ** 26, threads: 1 });
    const meta = createMetaDevice(device)!;
    const batch = batchOf(1, 8, false);
    const probe = (on: typeof meta, own: Block) =>
      probeWorkspaces(on, [own], layoutParameters([own], 4096), batch, 'float32');
    const reads = block((w) => tf.mul(w, w.dataSync()[0]!));
    expect(() => probe(meta, reads)).toThrow(expect.objectContaining({ code: 'BLOCK_INVALID' }));
    const odd = block((w) => tf.prelu(w, tf.scalar(0.1)));
    expect(probe(meta, odd)).toEqual(probe(device, odd));
    await device.dispose();
    await meta.dispose();
  });
});

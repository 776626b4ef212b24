// Goal: what is written is read back bit for bit, and a failed write leaves nothing but what was.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { writeDurableFile } from '../../src/checkpoint/durable-file.js';
import { SafetensorsFile } from '../../src/checkpoint/safetensors-reader.js';
import {
  safetensorsFileBytes,
  writeSafetensors,
  type TensorToWrite,
} from '../../src/checkpoint/safetensors-writer.js';
import { openDescriptorCount, temporaryFolder } from './temporary-folder.js';

const folder = temporaryFolder();

/** A tensor whose element bits are a function of `seed` and index: every bit pattern occurs. */
function patterned(
  name: string,
  dtype: TensorToWrite['dtype'],
  shape: readonly number[],
  seed: number,
): { tensor: TensorToWrite; bits: Uint32Array | Uint16Array } {
  const length = shape.reduce((a, b) => a * b, 1);
  const pattern = (_: unknown, index: number): number => Math.imul(index + seed, 0x9e3779b1) >>> 0;
  if (dtype === 'F32') {
    const bits = Uint32Array.from({ length }, pattern);
    const values = new Float32Array(bits.buffer);
    const read = async (offset: number, target: Float32Array): Promise<void> =>
      target.set(values.subarray(offset, offset + target.length));
    return { tensor: { name, dtype, shape, read }, bits };
  }
  const bits = Uint16Array.from({ length }, pattern);
  const read = async (offset: number, target: Uint16Array): Promise<void> =>
    target.set(bits.subarray(offset, offset + target.length));
  return { tensor: { name, dtype, shape, read }, bits };
}

async function storedBits(file: SafetensorsFile, name: string): Promise<number[]> {
  const entry = file.entry(name)!;
  const length = entry.shape.reduce((a, b) => a * b, 1);
  if (entry.dtype === 'F32') {
    const target = new Float32Array(length);
    await file.readElements(entry, 0, target);
    return [...new Uint32Array(target.buffer)];
  }
  const target = new Uint16Array(length);
  await file.readBits(entry, 0, target);
  return [...target];
}

const arbitraryTensor = fc.record({
  name: fc.oneof(fc.string({ unit: 'binary' }), fc.nat(50).map(String), fc.string()),
  dtype: fc.constantFrom<TensorToWrite['dtype']>('F32', 'BF16', 'F16', 'U16'),
  shape: fc.array(fc.nat(6), { maxLength: 4 }),
  seed: fc.nat(),
});

describe('writeSafetensors', () => {
  it('round-trips any names, shapes and dtypes bit for bit', async () => {
    const path = join(folder, 'any.safetensors');
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(arbitraryTensor, {
          selector: ({ name }) => name,
          maxLength: 6,
        }),
        async (specs) => {
          const made = specs.map(({ name, dtype, shape, seed }) =>
            patterned(name, dtype, shape, seed),
          );
          await writeSafetensors(
            path,
            made.map(({ tensor }) => tensor),
          );
          const file = await SafetensorsFile.open(path);
          expect(file.metadata).toEqual({ format: 'pt' });
          expect(file.entries.map(({ name }) => name).sort()).toEqual(
            specs.map(({ name }) => name).sort(),
          );
          for (const { tensor, bits } of made) {
            const { dtype, shape, begin } = file.entry(tensor.name)!;
            expect({ dtype, shape }).toEqual({ dtype: tensor.dtype, shape: tensor.shape });
            if (bits.length > 0) expect(begin % bits.BYTES_PER_ELEMENT).toBe(0);
            expect(await storedBits(file, tensor.name)).toEqual([...bits]);
          }
          await file.close();
        },
      ),
      {
        numRuns: 120,
      },
    );
  });

  it('writes tensors larger than its buffers, in the order given, at the size foretold', async () => {
    const path = join(folder, 'large.safetensors');
    const made = [
      patterned('first', 'F32', [262_144 * 2 + 3], 1),
      patterned('10', 'F32', [5], 2),
      patterned('2', 'F32', [262_144], 3),
      patterned('low', 'U16', [524_288 + 1], 4),
    ];
    const tensors = made.map(({ tensor }) => tensor);
    await writeSafetensors(path, tensors);
    const file = await SafetensorsFile.open(path);
    expect(file.entries.map(({ name }) => name)).toEqual(['first', '10', '2', 'low']);
    for (const { tensor, bits } of made) {
      const stored = await storedBits(file, tensor.name);
      expect(stored.every((word, index) => word === bits[index])).toBe(true);
      expect(stored.length).toBe(bits.length);
    }
    await file.close();
    const bytes = readFileSync(path);
    expect(bytes.length).toBe(safetensorsFileBytes(tensors));
    expect(bytes.readBigUInt64LE(0) % 8n).toBe(0n);
  });

  it('holds two pieces of at most 1 MiB, whatever the tensor', async () => {
    const lengths: number[] = [];
    const buffers = new Set<ArrayBufferLike>();
    const read = async (_: number, target: Float32Array): Promise<void> => {
      lengths.push(target.byteLength);
      buffers.add(target.buffer);
    };
    await writeSafetensors(join(folder, 'pieces.safetensors'), [
      { name: 'x', dtype: 'F32', shape: [1_000_000], read },
    ]);
    expect(Math.max(...lengths)).toBe(1_048_576);
    expect(buffers.size).toBe(2);
  });

  it('keeps the earlier file and leaves no half file when a tensor fails', async () => {
    const home = join(folder, 'failing');
    await mkdir(home);
    const path = join(home, 'model.safetensors');
    const good = patterned('x', 'F32', [10], 7);
    await writeSafetensors(path, [good.tensor]);
    const earlier = readFileSync(path);
    const before = openDescriptorCount(folder);
    for (const failingPiece of [0, 1, 2]) {
      let piece = 0;
      const read = async (): Promise<void> => {
        if (piece++ === failingPiece) throw new Error('the tier failed');
      };
      const shape = [262_144 * 3];
      await expect(
        writeSafetensors(path, [{ name: 'x', dtype: 'F32', shape, read }]),
      ).rejects.toThrow('the tier failed');
      expect(readFileSync(path).equals(earlier)).toBe(true);
      expect(readdirSync(home)).toEqual(['model.safetensors']);
      expect(openDescriptorCount(folder)).toBe(before);
    }
  });

  it('clears what a killed process left and refuses names used twice', async () => {
    const home = join(folder, 'killed');
    await mkdir(home);
    writeFileSync(join(home, '.tmp-model.safetensors'), 'half');
    const { tensor } = patterned('x', 'BF16', [2], 1);
    const path = join(home, 'model.safetensors');
    await writeSafetensors(path, [tensor]);
    expect(readdirSync(home)).toEqual(['model.safetensors']);
    await expect(writeSafetensors(path, [tensor, tensor])).rejects.toMatchObject({
      code: 'INTERNAL',
    });
  });
});

describe('writeDurableFile', () => {
  const failures = [
    ['ENOSPC', 'OUTPUT_FULL'],
    ['EDQUOT', 'OUTPUT_FULL'],
    ['EACCES', 'PATH_UNWRITABLE'],
    ['EIO', 'IO_ERROR'],
  ] as const;

  it.each(failures)('reports %s as %s and keeps the earlier file', async (errno, code) => {
    const home = join(folder, errno);
    await mkdir(home);
    const path = join(home, 'file');
    writeFileSync(path, 'earlier');
    const before = openDescriptorCount(folder);
    await expect(
      writeDurableFile(path, async (handle) => {
        await handle.writeFile('half');
        throw Object.assign(new Error('write failed'), { code: errno });
      }),
    ).rejects.toMatchObject({ code, facts: { errno } });
    expect(readFileSync(path, 'utf8')).toBe('earlier');
    expect(readdirSync(home)).toEqual(['file']);
    expect(openDescriptorCount(folder)).toBe(before);
  });

  it('reports a missing folder as PATH_UNWRITABLE', async () => {
    await expect(
      writeDurableFile(join(folder, 'none', 'file'), async () => undefined),
    ).rejects.toMatchObject({ code: 'PATH_UNWRITABLE' });
  });
});

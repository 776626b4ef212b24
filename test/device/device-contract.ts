/**
 * @file What every device promises, as tests: it borrows tfjs's global engine politely, moves bytes
 * exactly and ends cleanly. Each device's test file runs them.
 */
import * as tf from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { alignUp } from '../../core/bytes.js';
import type { Device } from '../../tiers/device/device.js';
import type { MemoryArena } from '../../tiers/host/host-buffer.js';
import { native } from '../../tiers/native/binding.js';
import { bitsOf, randomValues } from './tfjs-setup.js';

/** A host-addressable device and how it counts. */
export interface DeviceCase {
  readonly name: string;
  /** Bytes in whose multiples a tensor is charged. */
  readonly granuleBytes: number;
  /** Whether a contiguous slice shares its tensor's memory. */
  readonly sliceIsView: boolean;
  readonly create: (options: { budgetBytes: number }) => Device & { readonly arena: MemoryArena };
}

/** The tests. Call it once in a file, and first: it needs a process where tfjs has no backend. */
export function deviceContract({ name, granuleBytes, sliceIsView, create }: DeviceCase): void {
  let device: ReturnType<typeof create>;
  beforeEach(() => {
    device = create({ budgetBytes: 1 << 20 });
  });
  afterEach(async () => {
    await device.dispose();
  });

  describe('run', () => {
    // This test must come first in the file: afterwards tfjs has a backend.
    test('works when no backend was chosen, chooses none, and prints no banner', () => {
      const warn = vi.spyOn(console, 'warn').mockImplementation(() => undefined);
      const before = tf.getBackend() as string | undefined;
      expect(before).toBeUndefined();
      const sum = device.run(() => {
        expect(tf.getBackend()).toBe(name);
        return tf.tidy(() => tf.sum(tf.ones([3])).dataSync()[0]);
      });
      expect(sum).toBe(3);
      expect(tf.getBackend()).toBe(before);
      expect(warn).not.toHaveBeenCalled();
      warn.mockRestore();
    });

    test('works under tfjs DEBUG mode, which profiles kernels and logs them', async () => {
      const warn = vi.spyOn(console, 'warn').mockImplementation(() => undefined);
      const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
      const x = await device.upload(Float32Array.of(1, 2), [2], 'x');
      tf.env().set('DEBUG', true);
      const y = device.run(() => tf.sum(x));
      tf.env().set('DEBUG', false);
      await vi.waitFor(() => expect(String(log.mock.calls[0]?.[0])).toContain('Sum'));
      expect(y.dataSync()[0]).toBe(3);
      tf.dispose([x, y]);
      warn.mockRestore();
      log.mockRestore();
    });

    test('restores the previous backend after success, error and nesting', async () => {
      class OtherBackend extends tf.KernelBackend {
        override dispose(): void {
          // Nothing to free.
        }
      }
      const other = new OtherBackend();
      tf.registerBackend('other', () => other, 0);
      await tf.setBackend('other');
      expect(device.run(() => device.run(() => tf.getBackend()))).toBe(name);
      expect(tf.getBackend()).toBe('other');
      expect(tf.backend()).toBe(other);
      expect(() =>
        device.run(() => {
          throw new Error('boom');
        }),
      ).toThrow('boom');
      expect(tf.backend()).toBe(other);
      await tf.setBackend('cpu');
      tf.removeBackend('other');
    });

    test('runs while another backend is still starting, which then finishes', async () => {
      class SlowBackend extends tf.KernelBackend {
        override dispose(): void {
          // Nothing to free.
        }
      }
      let finish: (backend: tf.KernelBackend) => void = () => undefined;
      const started = new Promise<tf.KernelBackend>((resolve) => (finish = resolve));
      tf.registerBackend('slow', () => started, 0);
      const chosen = tf.setBackend('slow');
      expect(device.run(() => tf.tidy(() => tf.sum(tf.ones([3])).dataSync()[0]))).toBe(3);
      expect(() => tf.backend()).toThrow('has not yet been initialized');
      const slow = new SlowBackend();
      finish(slow);
      expect(await chosen).toBe(true);
      expect(tf.backend()).toBe(slow);
      await tf.setBackend('cpu');
      tf.removeBackend('slow');
    });

    test('refuses a promise', () => {
      const asynchronous = async (): Promise<never> => {
        throw new Error('must not surface as an unhandled rejection');
      };
      expect(() => device.run(asynchronous)).toThrow(
        expect.objectContaining({ code: 'BLOCK_INVALID' }),
      );
    });

    test('refuses complex tensors by name and frees their parts', () => {
      const make = (): unknown => device.run(() => tf.complex([1, 2], [3, 4]));
      expect(make).toThrow(expect.objectContaining({ code: 'BLOCK_INVALID' }));
      expect(device.ledger.liveBytes).toBe(0);
    });
  });

  describe('alias', () => {
    test('reads what the bytes hold when a kernel runs, without charge', () => {
      const lease = device.arena.lease(16, 'weights');
      const values = new Float32Array(lease.bytes.buffer, lease.bytes.byteOffset, 4);
      const { liveBytes } = device.ledger;
      const tensor = device.alias(lease.bytes, [2, 2]);
      expect(device.ledger.liveBytes).toBe(liveBytes);
      const double = (): number[] => {
        const y = device.run(() => tf.add(tensor, tensor));
        expect(device.ledger.liveBytes).toBe(liveBytes + alignUp(16, granuleBytes));
        const result = [...y.dataSync()];
        y.dispose();
        return result;
      };
      values.set([1, 2, 3, 4]);
      expect(double()).toEqual([2, 4, 6, 8]);
      values.set([5, 6, 7, 8]);
      expect(double()).toEqual([10, 12, 14, 16]);
      const row = device.run(() => tf.slice(tensor, [1, 0], [1, 2]));
      expect([...row.dataSync()]).toEqual([7, 8]);
      if (sliceIsView) {
        expect(device.ledger.liveBytes).toBe(liveBytes);
        values.set([9, 9], 2);
        expect([...row.dataSync()]).toEqual([9, 9]);
      }
      tf.dispose([tensor, row]);
      lease.dispose();
      expect(device.ledger.liveBytes).toBe(0);
    });

    test.skipIf(native() === undefined)('lies at page boundaries, as O_DIRECT needs', () => {
      const leases = [100, 4097, 8192].map((length) => device.arena.lease(length, 'state'));
      expect(leases.map(({ bytes }) => bytes.byteLength)).toEqual([100, 4097, 8192]);
      expect(leases.map(({ bytes }) => native()!.slabAddress(bytes) % 4096)).toEqual([0, 0, 0]);
      expect(device.ledger.liveBytes).toBe(4096 + 8192 + 8192);
      for (const lease of leases) lease.dispose();
    });

    test('needs bytes that fill the shape', () => {
      const lease = device.arena.lease(16, 'weights');
      expect(() => device.alias(lease.bytes, [5])).toThrow(
        expect.objectContaining({ code: 'INTERNAL' }),
      );
      lease.dispose();
    });
  });

  describe('upload by pieces', () => {
    const piece = fc.record({
      length: fc.integer({ min: 0, max: 40 }),
      type: fc.constantFrom('float32', 'bfloat16', 'float16'),
      order: fc.nat(),
      padding: fc.nat(3),
    });

    test('gives each element its value, whatever the order, types and alignment of the pieces', async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(piece, { minLength: 1, maxLength: 8 }),
          fc.integer({ min: 1, max: 1_000_000 }),
          async (pieces, seed) => {
            const length = pieces.reduce((sum, { length: n }) => sum + n, 0);
            const words = new Uint32Array(randomValues(length, seed).buffer);
            const upload = device.beginUpload([length], 'test');
            const uploadedBefore = device.uploadedBytes;
            let offset = 0;
            let sourceBytes = 0;
            const expected: number[] = [];
            const writes: { order: number; write: () => Promise<void> }[] = [];
            for (const { length: n, type, order, padding } of pieces) {
              const width = type === 'float32' ? 4 : 2;
              const bytes = new Uint8Array(n * width + padding).subarray(padding);
              for (let i = 0; i < n; i++) {
                // Scrambled bits: NaN, infinities and subnormals of every format appear.
                const word = Math.imul(words[offset + i]!, 0x85ebca6b) >>> 0;
                const view = new DataView(bytes.buffer, bytes.byteOffset);
                if (type === 'float32') {
                  view.setUint32(i * 4, word, true);
                  expected.push(view.getFloat32(i * 4, true));
                } else {
                  view.setUint16(i * 2, word & 0xffff, true);
                  expected.push(widen(word & 0xffff, type));
                }
              }
              const start = offset;
              writes.push({ order, write: () => upload.write(start, bytes, type) });
              offset += n;
              sourceBytes += bytes.byteLength;
            }
            for (const { write } of writes.sort((a, b) => a.order - b.order)) await write();
            const tensor = upload.finish();
            expect([...tensor.dataSync()]).toEqual(expected);
            expect(device.uploadedBytes - uploadedBefore).toBe(sourceBytes);
            tensor.dispose();
          },
        ),
        { numRuns: 100 },
      );
    });

    test('widens every 16-bit pattern exactly', async () => {
      const patterns = Uint16Array.from({ length: 65_536 }, (_, i) => i);
      for (const type of ['bfloat16', 'float16'] as const) {
        const upload = device.beginUpload([65_536], type);
        await upload.write(0, new Uint8Array(patterns.buffer), type);
        const tensor = upload.finish();
        const values = tensor.dataSync();
        const wrong = patterns.filter((bits) => !Object.is(values[bits], widen(bits, type)));
        expect(wrong).toHaveLength(0);
        tensor.dispose();
      }
    });

    test('keeps the payload bits of float32 NaN', async () => {
      const bits = Uint32Array.from([0x7fc00001, 0xff800001, 0x7f800000, 1, 0x80000000]);
      const upload = device.beginUpload([5], 'bits');
      await upload.write(0, new Uint8Array(bits.buffer), 'float32');
      const tensor = upload.finish();
      expect([...new Uint32Array(bitsOf(tensor).buffer)]).toEqual([...bits]);
      tensor.dispose();
    });

    test('refuses gaps, overlaps, overruns, other types and use after the end', async () => {
      const internal = expect.objectContaining({ code: 'INTERNAL' }) as unknown;
      const four = new Uint8Array(16);
      const upload = device.beginUpload([8], 'test');
      await upload.write(4, four, 'float32');
      expect(() => upload.finish()).toThrow(internal);
      await expect(upload.write(2, four, 'float32')).rejects.toEqual(internal);
      await expect(upload.write(5, four, 'float32')).rejects.toEqual(internal);
      await expect(upload.write(0, four, 'int32')).rejects.toEqual(internal);
      await upload.write(0, four, 'float32');
      upload.finish().dispose();
      expect(() => upload.finish()).toThrow(internal);
      await expect(upload.write(0, four, 'float32')).rejects.toEqual(internal);
      expect(device.ledger.liveBytes).toBe(0);
    });
  });

  describe('upload and download', () => {
    test('upload copies, so that the source may change', async () => {
      const data = Float32Array.of(1, 2, 3);
      const ids = Int32Array.of(4, 5);
      const tensors = [
        await device.upload(data, [3], 'data'),
        await device.upload(ids, [1, 2], 'ids'),
      ];
      data.fill(0);
      ids.fill(0);
      expect(tensors.map((t) => [t.dtype, t.shape, ...t.dataSync()])).toEqual([
        ['float32', [3], 1, 2, 3],
        ['int32', [1, 2], 4, 5],
      ]);
      expect(device.uploadedBytes).toBe(20);
      tf.dispose(tensors);
    });

    test('download copies any range and counts its bytes', async () => {
      const values = randomValues(50, 3);
      const tensor = await device.upload(values, [5, 10], 'values');
      await fc.assert(
        fc.asyncProperty(fc.nat(50), fc.nat(50), async (a, b) => {
          const [start, end] = [Math.min(a, b), Math.max(a, b)];
          const target = new Float32Array(end - start);
          const before = device.downloadedBytes;
          await device.download(tensor, start, target);
          expect(target).toEqual(values.slice(start, end));
          expect(device.downloadedBytes - before).toBe(target.byteLength);
          target.fill(7);
        }),
      );
      // The copies were copies.
      expect(tensor.dataSync()).toEqual(values);
      await expect(device.download(tensor, 41, new Float32Array(10))).rejects.toEqual(
        expect.objectContaining({ code: 'INTERNAL' }),
      );
      tensor.dispose();
    });
  });

  describe('dispose', () => {
    test('frees the device; its tensors fail by name, others live on', async () => {
      await tf.setBackend('cpu');
      const foreign = tf.tensor1d([1, 2]);
      const before = tf.memory().numTensors;
      const tensor = device.run(() => tf.ones([4]));
      await device.dispose();
      await device.dispose();
      expect(device.ledger.liveBytes).toBe(0);
      const closed = expect.objectContaining({ code: 'ENGINE_CLOSED' }) as unknown;
      expect(() => device.run(() => 1)).toThrow(closed);
      expect(() => device.beginUpload([1], 'late')).toThrow(closed);
      expect(() => tensor.dataSync()).toThrow(closed);
      tensor.dispose();
      expect(tf.memory().numTensors).toBe(before);
      expect([...foreign.dataSync()]).toEqual([1, 2]);
      foreign.dispose();
    });
  });
}

/** 16-bit patterns with their float32 values by the formats' definitions (IEEE 754). */
function widen(bits: number, type: 'bfloat16' | 'float16'): number {
  const fractionBits = type === 'bfloat16' ? 7 : 10;
  const exponentBits = 15 - fractionBits;
  const bias = 2 ** (exponentBits - 1) - 1;
  const sign = bits >>> 15 === 0 ? 1 : -1;
  const exponent = (bits >>> fractionBits) & (2 ** exponentBits - 1);
  const fraction = (bits & (2 ** fractionBits - 1)) / 2 ** fractionBits;
  if (exponent === 2 ** exponentBits - 1) return fraction === 0 ? sign * Infinity : Number.NaN;
  if (exponent === 0) return sign * fraction * 2 ** (1 - bias);
  return sign * (1 + fraction) * 2 ** (exponent - bias);
}

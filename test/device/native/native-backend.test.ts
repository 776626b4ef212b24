// Goal: the backend keeps tfjs's contract, its memory is reused behind the right events, and what
// the addon cannot do is done in JavaScript, said and counted.
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { COMPUTE, UPLOAD } from '../../../tiers/device/native/command-queues.js';
import { deviceThreads } from '../../../tiers/device/native/device-threads.js';
import { kernelIdOf } from '../../../tiers/device/native/kernel-id.js';
import { NativeBackend } from '../../../tiers/device/native/native-backend.js';
import { NativeDevice } from '../../../tiers/device/native/native-device.js';
import { registerNativeBackend } from '../../../tiers/device/native/register-backend.js';
import { native } from '../../../tiers/native/binding.js';

const hasAddon = native() !== undefined;
const MIB = 2 ** 20;
const outOfMemory = (facts: Record<string, number>): unknown =>
  expect.objectContaining({
    code: 'DEVICE_OUT_OF_MEMORY',
    facts: expect.objectContaining(facts) as unknown,
  });

describe.skipIf(!hasAddon)('NativeBackend', () => {
  let device: NativeDevice;
  let backend: NativeBackend;
  beforeEach(() => {
    device = NativeDevice.create({ budgetBytes: 8 * MIB, threads: 2 });
    backend = device.backend;
  });
  afterEach(async () => {
    await device.dispose();
  });

  const pause = (ms: number): void => backend.launch(kernelIdOf('sleepFor'), [ms]);

  describe('values', () => {
    test('come back as they were written, for each type, sync and async', async () => {
      const cases = [
        ['float32', Float32Array.of(1.5, -0, Number.NaN, Infinity)],
        ['int32', Int32Array.of(2 ** 31 - 1, -(2 ** 31), 0, 7)],
        ['bool', Uint8Array.of(1, 0, 1, 1)],
      ] as const;
      for (const [dtype, values] of cases) {
        const id = backend.write(values, [4], dtype);
        expect(backend.readSync(id)).toEqual(values);
        expect(await backend.read(id)).toEqual(values);
        expect(backend.disposeData(id)).toBe(true);
      }
      const empty = backend.write(new Float32Array(0), [0, 3], 'float32');
      expect(backend.readSync(empty)).toEqual(new Float32Array(0));
      expect(await backend.read(empty)).toEqual(new Float32Array(0));
      backend.disposeData(empty);
      expect(device.ledger.liveCount).toBe(0);
    });

    test('are taken when they are written, and converted when they are in another array', () => {
      pause(20);
      const values = Float32Array.of(1, 2);
      const id = backend.write(values, [2], 'float32');
      values.fill(9);
      expect([...backend.readSync(id)]).toEqual([1, 2]);
      const bool = backend.write([true, false] as never, [2], 'bool');
      expect([...backend.readSync(bool)]).toEqual([1, 0]);
      const list = backend.write([3, 4] as never, [2], 'int32');
      expect(backend.readSync(list)).toEqual(Int32Array.of(3, 4));
      for (const one of [id, bool, list]) backend.disposeData(one);
    });

    test('read asynchronously, survive the tensor and what is written after it', async () => {
      const first = device.run(() => tf.fill([1000], 5));
      const read = first.data();
      first.dispose();
      const second = device.run(() => tf.fill([1000], 6));
      expect(await read).toEqual(new Float32Array(1000).fill(5));
      expect(second.dataSync()).toEqual(new Float32Array(1000).fill(6));
      second.dispose();
    });

    test('strings and complex numbers are refused by name', () => {
      const invalid = expect.objectContaining({ code: 'BLOCK_INVALID' }) as unknown;
      expect(() => device.run(() => tf.tensor1d(['a']))).toThrow(invalid);
      expect(() => backend.makeOutput([1], 'complex64')).toThrow(invalid);
      expect(device.ledger.liveCount).toBe(0);
    });
  });

  describe('sharing', () => {
    test('Reshape and Identity charge nothing, and the memory lives as long as any of them', () => {
      const x = device.run(() => tf.fill([6], 2));
      const charged = device.ledger.liveBytes;
      const [y, z] = device.run(() => [tf.reshape(x, [2, 3]), tf.clone(x)]);
      expect(backend.refCount(x.dataId)).toBe(3);
      expect(device.ledger.liveBytes).toBe(charged);
      x.dispose();
      y.dispose();
      expect(device.ledger.liveBytes).toBe(charged);
      expect([...z.dataSync()]).toEqual([2, 2, 2, 2, 2, 2]);
      z.dispose();
      expect(device.ledger.liveBytes).toBe(0);
    });

    test('a part of a tensor shares its memory and outlives it', () => {
      const x = device.run(() => tf.tensor1d([1, 2, 3, 4, 5, 6]));
      const part = backend.alias(x, [2], 3);
      expect(backend.offsetOf(part)).toBe(backend.offsetOf(x) + 12);
      expect(() => backend.alias(x, [2], 5)).toThrow('lies in its x');
      x.dispose();
      expect(device.ledger.liveBytes).toBe(64);
      expect([...backend.readSync(part.dataId)]).toEqual([4, 5]);
      backend.disposeData(part.dataId);
      expect(device.ledger.liveBytes).toBe(0);
      expect(backend.numDataIds()).toBe(0);
    });

    test('references are counted; force ignores them', () => {
      const id = backend.write(Float32Array.of(1), [1], 'float32');
      backend.incRef(id);
      expect(backend.disposeData(id)).toBe(false);
      expect(backend.disposeData(id)).toBe(true);
      expect(backend.disposeData(id)).toBe(true);
      const other = backend.write(Float32Array.of(1), [1], 'float32');
      backend.incRef(other);
      expect(backend.disposeData(other, true)).toBe(true);
      expect(backend.numDataIds()).toBe(0);
    });
  });

  describe('bfloat16 operands', () => {
    /** Values that bfloat16 holds exactly, and an upload that keeps them so. */
    async function keep(rows: number, columns: number, seed: number): Promise<[Tensor, Tensor]> {
      const bits = Uint16Array.from({ length: rows * columns }, (_, i) => {
        // Signs, small exponents and all fractions.
        return (Math.imul(i + seed, 0x9e3779b1) >>> 16) % 2 === 0
          ? 0x3f00 + ((i * 37 + seed) % 256)
          : 0xbe80 + ((i * 91 + seed) % 256);
      });
      const upload = device.beginUpload([rows, columns], 'kept', { keepBfloat16: true });
      const wide = device.beginUpload([rows, columns], 'widened');
      const bytes = new Uint8Array(bits.buffer);
      await Promise.all([upload.write(0, bytes, 'bfloat16'), wide.write(0, bytes, 'bfloat16')]);
      return [upload.finish(), wide.finish()];
    }

    test('take half the bytes, and give products the bits of their float32 copies', async () => {
      const [kept, wide] = await keep(24, 40, 5);
      expect(kept.dtype).toBe('float32');
      expect(device.ledger.liveBytes).toBe(24 * 40 * 6);
      const x = device.run(() => tf.randomUniform<tf.Rank.R2>([7, 24], -1, 1, 'float32', 3));
      const y = device.run(() => tf.randomUniform<tf.Rank.R2>([7, 40], -1, 1, 'float32', 4));
      const before = device.ledger.liveBytes;
      for (const product of [
        (weight: Tensor) => tf.matMul(x, weight),
        (weight: Tensor) => tf.matMul(y, weight, false, true),
        (weight: Tensor) => tf.matMul(x, tf.reshape(tf.clone(weight), [24, 40])),
      ]) {
        const [a, b] = device.run(() => tf.tidy(() => [product(kept), product(wide)]));
        expect(new Uint8Array(a.dataSync().buffer)).toEqual(new Uint8Array(b.dataSync().buffer));
        tf.dispose([a, b]);
      }
      // No float32 copy was made.
      expect(device.ledger.liveBytes).toBe(before);
      tf.dispose([x, y, kept, wide]);
    });

    test('are float32 tensors to everything else, by a copy that lives as long', async () => {
      const [kept, wide] = await keep(6, 10, 9);
      const bytes = device.ledger.liveBytes;
      const expected = wide.dataSync();
      expect(kept.dataSync()).toEqual(expected);
      expect(device.ledger.liveBytes).toBe(bytes + 256);
      expect(await kept.data()).toEqual(expected);
      const sum = device.run(() => tf.add(kept, wide));
      const row = device.run(() => tf.slice(kept, [2, 0], [1, 10]));
      expect([...sum.dataSync()]).toEqual([...expected].map((value) => 2 * value));
      expect(row.dataSync()).toEqual(expected.slice(20, 30));
      const target = new Float32Array(5);
      await device.download(kept, 7, target);
      expect(target).toEqual(expected.slice(7, 12));
      // A part of it is plain float32 and outlives it.
      const part = backend.alias(kept, [4], 20);
      tf.dispose([kept, wide, sum, row]);
      expect(backend.readSync(part.dataId)).toEqual(expected.slice(20, 24));
      backend.disposeData(part.dataId);
      expect(device.ledger.liveBytes).toBe(0);
    });

    test('arrive as bfloat16 only', async () => {
      const upload = device.beginUpload([4], 'kept', { keepBfloat16: true });
      const internal = expect.objectContaining({ code: 'INTERNAL' }) as unknown;
      await expect(upload.write(0, new Uint8Array(16), 'float32')).rejects.toEqual(internal);
      upload.abort();
      expect(device.ledger.liveBytes).toBe(0);
    });
  });

  describe('tensors of other backends', () => {
    test('move here when a kernel reads them', async () => {
      await tf.setBackend('cpu');
      const foreign = tf.tensor1d([1, 2, 3]);
      const other = NativeDevice.create({ budgetBytes: MIB });
      const away = other.run(() => tf.fill([3], 10));
      const sum = device.run(() => tf.add(foreign, away));
      expect([...sum.dataSync()]).toEqual([11, 12, 13]);
      expect(device.ledger.liveBytes).toBe(3 * 64);
      expect(other.ledger.liveBytes).toBe(0);
      tf.dispose([foreign, away, sum]);
      expect(device.ledger.liveBytes).toBe(0);
      await other.dispose();
    });

    test('stay whole where they are when they do not fit', async () => {
      await tf.setBackend('cpu');
      const foreign = tf.ones([4 * MIB]);
      const square = (): Tensor => device.run(() => tf.square(foreign));
      expect(square).toThrow(outOfMemory({ neededBytes: 16 * MIB, freeBytes: 8 * MIB }));
      expect(foreign.dataSync()[4 * MIB - 1]).toBe(1);
      foreign.dispose();
    });
  });

  describe('memory', () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant('fill' as const), rows: fc.integer({ min: 1, max: 40 }) }),
      fc.record({ kind: fc.constant('upload' as const), rows: fc.integer({ min: 1, max: 40 }) }),
      fc.record({ kind: fc.constant('double' as const), index: fc.nat(30) }),
      fc.record({ kind: fc.constant('dispose' as const), index: fc.nat(30) }),
      fc.record({ kind: fc.constant('download' as const), index: fc.nat(30) }),
      fc.record({ kind: fc.constant('pause' as const) }),
    );

    test('is never reused before its last use on any queue is over', async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 80 }), async (steps) => {
          // So small that every free byte is somebody's former memory.
          const small = NativeDevice.create({ budgetBytes: 6000, threads: 1 });
          const live: { tensor: Tensor; values: number[] }[] = [];
          const checks: Promise<void>[] = [];
          const compare = async (read: Promise<unknown>, values: number[]): Promise<void> => {
            expect(await read).toEqual(Float32Array.from(values));
          };
          const keep = (values: number[], make: () => Tensor): void => {
            try {
              live.push({ tensor: make(), values });
            } catch (error) {
              expect(error).toEqual(outOfMemory({ budgetBytes: 6000 }));
            }
          };
          for (const [at, command] of steps.entries()) {
            const picked = 'index' in command ? live[command.index % live.length] : undefined;
            if (command.kind === 'pause') {
              small.backend.launch(kernelIdOf('sleepFor'), [0.3]);
            } else if (command.kind === 'fill') {
              const length = command.rows * 7;
              const values = Array.from({ length }, () => at);
              keep(values, () => small.run(() => tf.fill([length], at)));
            } else if (command.kind === 'upload') {
              const values = Array.from({ length: command.rows * 7 }, (_, i) => at + i / 1024);
              keep(values, () => {
                const upload = small.beginUpload([values.length], 'test');
                const bytes = new Uint8Array(Float32Array.from(values).buffer);
                checks.push(upload.write(0, bytes, 'float32'));
                return upload.finish();
              });
            } else if (picked !== undefined && command.kind === 'double') {
              const { tensor, values } = picked;
              const doubled = values.map((value) => Math.fround(value * 2));
              keep(doubled, () => small.run(() => tf.add(tensor, tensor)));
            } else if (picked !== undefined && command.kind === 'download') {
              checks.push(compare(picked.tensor.data(), picked.values));
            } else if (picked !== undefined) {
              picked.tensor.dispose();
              live.splice(live.indexOf(picked), 1);
            }
          }
          for (const { tensor, values } of live) checks.push(compare(tensor.data(), values));
          await Promise.all(checks);
          for (const { tensor } of live) tensor.dispose();
          expect(small.ledger.liveBytes).toBe(0);
          await small.dispose();
        }),
        { numRuns: 60 },
      );
    });

    test('an upload runs beside compute, and one into memory that a kernel uses runs behind it', async () => {
      const bytes = new Uint8Array(MIB);
      const upload = async (): Promise<number> => {
        const before = performance.now();
        const part = device.beginUpload([MIB / 4], 'test');
        await part.write(0, bytes, 'float32');
        const took = performance.now() - before;
        part.finish().dispose();
        return took;
      };
      await upload();
      pause(150);
      expect(await upload()).toBeLessThan(140);
      await device.synchronize();
      // Now all free memory is a kernel's former output.
      const all = device.run(() => tf.fill([2 * MIB], 1));
      pause(150);
      device.run(() => tf.fill([0], 1)).dispose();
      all.dispose();
      expect(await upload()).toBeGreaterThan(100);
    });

    test('scattered free bytes refuse nothing that fits; overflowing pages go back', () => {
      const parts = Array.from({ length: 8 }, (_, i) => device.run(() => tf.fill([MIB / 4], i)));
      for (const part of parts.filter((_, index) => index % 2 === 1)) part.dispose();
      expect(device.ledger.liveBytes).toBe(4 * MIB);
      // No free range of 4 MiB is left among the first 8.
      const whole = device.run(() => tf.fill([MIB], 9));
      expect(device.ledger.liveBytes).toBe(8 * MIB);
      expect(() => device.run(() => tf.fill([1], 0))).toThrow(
        outOfMemory({ neededBytes: 64, freeBytes: 0, largestFreeBytes: 0, budgetBytes: 8 * MIB }),
      );
      expect(whole.dataSync().every((value) => value === 9)).toBe(true);
      for (const [index, part] of parts.entries()) {
        if (index % 2 === 0) expect(part.dataSync()[MIB / 4 - 1]).toBe(index);
      }
      const submitted = backend.queues.submitted(COMPUTE);
      whole.dispose();
      expect(backend.queues.submitted(COMPUTE)).toBe(submitted + 1);
      tf.dispose(parts);
    });

    test('a measurement may exceed the budget, and its kernels really run', () => {
      let last: number | undefined;
      const bytes = device.ledger.measure(() => {
        const big = device.run(() => tf.fill([8 * MIB], 3));
        last = big.dataSync()[8 * MIB - 1];
        big.dispose();
      });
      expect(bytes).toBe(32 * MIB);
      expect(last).toBe(3);
    });

    test('a lease is not given back before kernels that read it have run', () => {
      const lease = device.arena.lease(4096, 'weights');
      const values = new Float32Array(lease.bytes.buffer, lease.bytes.byteOffset, 1024);
      values.fill(2);
      const alias = device.alias(lease.bytes, [1024]);
      pause(50);
      const copy = device.run(() => tf.add(alias, 0));
      alias.dispose();
      lease.dispose();
      // The pool's next lease is the same memory.
      values.fill(-1);
      expect(copy.dataSync()).toEqual(new Float32Array(1024).fill(2));
      copy.dispose();
    });

    test('what a kernel made before it failed is freed', () => {
      const before = backend.numDataIds();
      const x = device.run(() => tf.fill([MIB], 1));
      // Needs two outputs of 3 MiB, of which one fits.
      const split = (): unknown =>
        device.run(() => {
          const a = backend.makeOutput([MIB], 'float32');
          backend.makeOutput([MIB], 'float32');
          return a;
        });
      expect(split).toThrow(outOfMemory({ neededBytes: 4 * MIB }));
      expect(backend.numDataIds()).toBe(before + 1);
      expect(device.ledger.liveBytes).toBe(4 * MIB);
      x.dispose();
    });
  });

  describe('kernels that the addon has not', () => {
    test('run in JavaScript, are warned about once and counted', () => {
      const write = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
      const x = device.run(() => tf.tensor1d([0.5, -0.25]));
      const asinh = (): Tensor => device.run(() => tf.asinh(x));
      const [first, second] = [asinh(), asinh()];
      const { indices, values } = device.run(() => tf.topk(x, 1));
      const lines = write.mock.calls.map(([line]) => String(line));
      write.mockRestore();
      expect(first.dataSync()[0]).toBeCloseTo(Math.asinh(0.5), 6);
      expect([...values.dataSync(), ...indices.dataSync()]).toEqual([0.5, 0]);
      expect(Object.fromEntries(device.fallbackCounts)).toEqual({ Asinh: 2, TopK: 1 });
      expect(lines.filter((line) => line.includes('no kernel Asinh'))).toHaveLength(1);
      expect(tf.engine().findBackend('cpu').numDataIds()).toBe(0);
      tf.dispose([x, first, second, indices, values]);
      expect(device.ledger.liveBytes).toBe(0);
    });

    test('refuse types that the device has not, and leave nothing behind', () => {
      vi.spyOn(process.stderr, 'write').mockReturnValue(true);
      const x = device.run(() => tf.tensor1d([1, 2]));
      const spectrum = (): unknown => device.run(() => tf.spectral.rfft(x));
      expect(spectrum).toThrow(expect.objectContaining({ code: 'BLOCK_INVALID' }));
      vi.restoreAllMocks();
      x.dispose();
      expect(device.ledger.liveBytes).toBe(0);
      expect(tf.engine().findBackend('cpu').numDataIds()).toBe(0);
    });
  });

  test('times kernels until they have run', async () => {
    const { kernelMs } = await backend.time(() => pause(30));
    expect(kernelMs).toBeGreaterThan(29);
  });

  test('dispose with queued work lets it finish first', async () => {
    pause(40);
    const x = device.run(() => tf.fill([4], 8));
    const target = new Float32Array(4);
    const downloaded = device.download(x, 0, target);
    const upload = device.beginUpload([4], 'never finished');
    void upload.write(0, new Uint8Array(16), 'float32');
    await device.dispose();
    await downloaded;
    expect([...target]).toEqual([8, 8, 8, 8]);
    x.dispose();
    expect(backend.queues.isClosed).toBe(true);
    expect(backend.queues.submitted(UPLOAD)).toBeGreaterThan(0);
  });
});

describe.skipIf(!hasAddon)('as a backend of any tfjs program', () => {
  test('can be chosen by name, and released', async () => {
    registerNativeBackend({ budgetBytes: MIB });
    await tf.setBackend('native');
    const x = tf.tensor2d([1, 2, 3, 4], [2, 2]);
    expect([...tf.add(x, tf.scalar(1)).dataSync()]).toEqual([2, 3, 4, 5]);
    expect(() => tf.fill([MIB], 0)).toThrow(outOfMemory({ budgetBytes: MIB }));
    await tf.setBackend('cpu');
    tf.removeBackend('native');
  });
});

describe('SPILLWAY_THREADS', () => {
  afterEach(() => void vi.unstubAllEnvs());

  test('sets the number of threads, and nothing but a number of threads', () => {
    vi.stubEnv('SPILLWAY_THREADS', '3');
    expect(deviceThreads()).toBe(3);
    vi.stubEnv('SPILLWAY_THREADS', '');
    expect(deviceThreads()).toBeGreaterThanOrEqual(1);
    for (const wrong of ['0', '-1', '1.5', 'many', '100000']) {
      vi.stubEnv('SPILLWAY_THREADS', wrong);
      expect(() => deviceThreads()).toThrow(expect.objectContaining({ code: 'CONFIG_INVALID' }));
    }
  });
});

/**
 * @file What every device promises about memory, as tests: its ledger is exact, its budget is hard,
 * and a refusal harms nothing. Each device's test file runs them.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { alignUp } from '../../core/bytes.js';
import type { TensorUpload } from '../../tiers/device/device.js';
import { vjp } from '../../tiers/device/tape.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import type { DeviceCase } from './device-contract.js';

export const outOfMemory = (facts: Record<string, number>): unknown =>
  expect.objectContaining({
    code: 'DEVICE_OUT_OF_MEMORY',
    facts: expect.objectContaining(facts) as unknown,
  });

/** What the oracle knows of a live tensor: which block of memory it looks into. */
interface Held {
  readonly tensor: Tensor;
  readonly block: { readonly bytes: number };
}

const command = fc.oneof(
  fc.record({ kind: fc.constant('fill' as const), rows: fc.integer({ min: 1, max: 40 }) }),
  fc.record({ kind: fc.constant('add' as const), index: fc.nat(30) }),
  fc.record({ kind: fc.constant('reshape' as const), index: fc.nat(30) }),
  fc.record({ kind: fc.constant('rows' as const), index: fc.nat(30) }),
  fc.record({ kind: fc.constant('dispose' as const), index: fc.nat(30) }),
  fc.record({ kind: fc.constant('upload' as const), rows: fc.integer({ min: 1, max: 40 }) }),
  fc.record({ kind: fc.constant('begin' as const), rows: fc.integer({ min: 1, max: 40 }) }),
  fc.record({ kind: fc.constant('end' as const), index: fc.nat(30), finish: fc.boolean() }),
  fc.record({ kind: fc.constant('lease' as const), bytes: fc.integer({ min: 1, max: 9000 }) }),
  fc.record({ kind: fc.constant('return' as const), index: fc.nat(30) }),
  fc.record({ kind: fc.constant('alias' as const), index: fc.nat(30) }),
);

/** Plays commands on a device beside a model that counts each block of memory once. */
class Model {
  readonly device: ReturnType<DeviceCase['create']>;
  readonly held: Held[] = [];
  readonly uploads: { upload: TensorUpload; rows: number; block: { bytes: number } }[] = [];
  readonly leases: { lease: MemoryLease; block: { bytes: number } }[] = [];
  peak = 0;
  readonly #kind: DeviceCase;

  constructor(kind: DeviceCase, budgetBytes: number) {
    this.#kind = kind;
    this.device = kind.create({ budgetBytes });
  }

  /** What a tensor of `bytes` is charged. */
  charged(bytes: number): number {
    return alignUp(bytes, this.#kind.granuleBytes);
  }

  get liveBytes(): number {
    const blocks = new Set([...this.held, ...this.uploads, ...this.leases].map((h) => h.block));
    return [...blocks].reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** Allocates `bytes` by `make` if the budget has them; otherwise expects the refusal. */
  async allocate<T>(bytes: number, make: () => T | Promise<T>): Promise<T | undefined> {
    const freeBytes = this.device.ledger.budgetBytes - this.liveBytes;
    if (bytes <= freeBytes) return await make();
    const refused = (async () => make())();
    await expect(refused).rejects.toEqual(outOfMemory({ neededBytes: bytes, freeBytes }));
    return undefined;
  }

  async keep(bytes: number, make: () => Tensor | Promise<Tensor>): Promise<void> {
    const charged = this.charged(bytes);
    const tensor = await this.allocate(charged, make);
    if (tensor !== undefined) this.held.push({ tensor, block: { bytes: charged } });
  }

  async play(step: typeof command extends fc.Arbitrary<infer C> ? C : never): Promise<void> {
    const { device } = this;
    const pick = 'index' in step ? this.held[step.index % this.held.length] : undefined;
    switch (step.kind) {
      case 'fill':
        return this.keep(step.rows * 16, () => device.run(() => tf.fill([step.rows, 4], 2)));
      case 'upload': {
        const data = new Float32Array(step.rows * 4);
        return this.keep(data.byteLength, () => device.upload(data, [step.rows, 4], 'test'));
      }
      case 'add':
        if (!pick) return;
        return this.keep(pick.tensor.size * 4, () =>
          device.run(() => tf.add(pick.tensor, pick.tensor)),
        );
      case 'reshape':
        if (!pick) return;
        this.held.push({
          tensor: device.run(() => tf.reshape(pick.tensor, [-1, 1])),
          block: pick.block,
        });
        return;
      case 'rows': {
        if (!pick) return;
        const width = pick.tensor.shape[1]!;
        const first = (): Tensor => device.run(() => tf.slice(pick.tensor, [0, 0], [1, width]));
        if (!this.#kind.sliceIsView) return this.keep(width * 4, first);
        this.held.push({ tensor: first(), block: pick.block });
        return;
      }
      case 'dispose':
        if (pick) this.held.splice(this.held.indexOf(pick), 1)[0]!.tensor.dispose();
        return;
      case 'begin': {
        const bytes = this.charged(step.rows * 16);
        const upload = await this.allocate(bytes, () => device.beginUpload([step.rows, 4], 'test'));
        if (upload) this.uploads.push({ upload, rows: step.rows, block: { bytes } });
        return;
      }
      case 'end':
        return this.end(step.index, step.finish);
      case 'lease': {
        const bytes = Math.ceil(step.bytes / 4096) * 4096;
        const lease = await this.allocate(bytes, () => device.arena.lease(step.bytes, 'test'));
        if (lease) this.leases.push({ lease, block: { bytes } });
        return;
      }
      case 'return': {
        const [entry] = this.leases.splice(step.index % (this.leases.length || 1), 1);
        entry?.lease.dispose();
        entry?.lease.dispose();
        return;
      }
      case 'alias': {
        const lease = this.leases[step.index % this.leases.length]?.lease;
        if (!lease || lease.bytes.byteLength < 4) return;
        device.alias(lease.bytes.subarray(0, 4), [1]).dispose();
        return;
      }
    }
  }

  async end(index: number, finish: boolean): Promise<void> {
    const [entry] = this.uploads.splice(index % (this.uploads.length || 1), 1);
    if (entry === undefined) return;
    if (!finish) {
      entry.upload.abort();
      entry.upload.abort();
      return;
    }
    await entry.upload.write(0, new Uint8Array(entry.rows * 16), 'float32');
    this.held.push({ tensor: entry.upload.finish(), block: entry.block });
  }

  check(): void {
    const { liveBytes } = this;
    this.peak = Math.max(this.peak, liveBytes);
    expect(this.device.ledger.liveBytes).toBe(liveBytes);
    expect(this.device.ledger.peakBytes).toBe(this.peak);
  }

  async close(): Promise<void> {
    tf.dispose(this.held.map(({ tensor }) => tensor));
    for (const { upload } of this.uploads) upload.abort();
    for (const { lease } of this.leases) lease.dispose();
    expect(this.device.ledger.liveBytes).toBe(0);
    expect(this.device.ledger.liveCount).toBe(0);
    await this.device.dispose();
  }
}

/** The tests. */
export function budgetContract(kind: DeviceCase): void {
  const charged = (bytes: number): number => alignUp(bytes, kind.granuleBytes);

  describe('ledger', () => {
    test('equals a model that counts each block of memory once, through random lives', async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(command, { minLength: 10, maxLength: 60 }),
          fc.integer({ min: 500, max: 20_000 }),
          async (steps, budgetBytes) => {
            const before = tf.memory().numTensors;
            const model = new Model(kind, budgetBytes);
            for (const step of steps) {
              await model.play(step);
              model.check();
            }
            await model.close();
            expect(tf.memory().numTensors).toBe(before);
          },
        ),
        { numRuns: 100 },
      );
    });

    test('keeps the books of two devices apart, nested or not', async () => {
      const [a, b] = [1000, 1000].map((budgetBytes) => kind.create({ budgetBytes }));
      const [x, y, z] = a!.run(() => {
        const first = tf.ones([10]);
        const second = b!.run(() => tf.ones([20]));
        return [first, second, tf.ones([30])];
      });
      expect([a!.ledger.liveBytes, b!.ledger.liveBytes]).toEqual([
        charged(40) + charged(120),
        charged(80),
      ]);
      tf.dispose([x, y, z]);
      expect([a!.ledger.liveBytes, b!.ledger.liveBytes]).toEqual([0, 0]);
      await Promise.all([a!.dispose(), b!.dispose()]);
    });

    test('resetPeak returns the old peak and begins at the live bytes', async () => {
      const device = kind.create({ budgetBytes: 1000 });
      const kept = device.run(() => tf.ones([10]));
      device.run(() => {
        tf.ones([100]).dispose();
      });
      expect(device.ledger.resetPeak()).toBe(charged(40) + charged(400));
      expect(device.ledger.peakBytes).toBe(charged(40));
      kept.dispose();
      await device.dispose();
    });

    test('takeHighBytes gives the most held since the last call, whatever the peak', async () => {
      const device = kind.create({ budgetBytes: 1000 });
      const flash = (elements: number): void => {
        device.run(() => {
          tf.ones([elements]).dispose();
        });
      };
      flash(100);
      const kept = device.run(() => tf.ones([10]));
      flash(50);
      expect(device.ledger.takeHighBytes()).toBe(charged(400));
      expect(device.ledger.takeHighBytes()).toBe(charged(40));
      flash(20);
      kept.dispose();
      expect(device.ledger.takeHighBytes()).toBe(charged(40) + charged(80));
      expect(device.ledger.takeHighBytes()).toBe(0);
      device.ledger.measure(() => flash(200));
      expect(device.ledger.takeHighBytes()).toBe(0);
      expect(device.ledger.peakBytes).toBe(charged(400));
      await device.dispose();
    });

    test('measure ignores the budget and gives the peak above the start; then the budget holds again', async () => {
      const device = kind.create({ budgetBytes: 1000 });
      const kept = device.run(() => tf.ones([100]));
      const bytes = device.ledger.measure(() => {
        device.run(() => {
          const a = tf.ones([500]);
          const b = tf.add(a, a);
          tf.dispose([a, b]);
          tf.ones([200]).dispose();
        });
      });
      expect(bytes).toBe(2 * charged(2000));
      expect(device.ledger.liveBytes).toBe(charged(400));
      expect(device.ledger.peakBytes).toBe(charged(400));
      expect(() => device.run(() => tf.ones([500]))).toThrow(
        outOfMemory({ neededBytes: charged(2000) }),
      );
      kept.dispose();
      await device.dispose();
    });
  });

  describe('out of memory', () => {
    test('at every possible budget a softmax block fails whole or gives the same bits, and leaks nothing', async () => {
      const values = Float32Array.from({ length: 64 }, (_, i) => Math.sin(i));
      const attempt = async (budgetBytes: number): Promise<Float32Array | undefined> => {
        const device = kind.create({ budgetBytes });
        const x = await device.upload(values, [8, 8], 'x');
        const before = tf.memory().numTensors;
        let result: Float32Array | undefined;
        try {
          const [dx] = device.run(
            () =>
              vjp(
                // Softmax and Mean allocate for themselves inside their kernels.
                () => [tf.softmax(tf.sub(tf.matMul(x, x), tf.mean(x, -1, true)))],
                [x],
                ([y]) => [tf.onesLike(y!)],
              ).grads,
          );
          result = new Float32Array(64);
          await device.download(dx!, 0, result);
          dx!.dispose();
        } catch (error) {
          expect(error).toEqual(outOfMemory({ budgetBytes }));
        }
        expect(tf.memory().numTensors).toBe(before);
        expect(device.ledger.liveBytes).toBe(256);
        // Still usable.
        expect(x.dataSync()).toEqual(values);
        x.dispose();
        await device.dispose();
        return result;
      };
      const expected = await attempt(1 << 20);
      let successes = 0;
      for (let budgetBytes = 256; budgetBytes <= 4096; budgetBytes += 64) {
        const result = await attempt(budgetBytes);
        if (result === undefined) expect(successes).toBe(0);
        else {
          expect(result).toEqual(expected);
          successes += 1;
        }
      }
      expect(successes).toBeGreaterThan(0);
      expect(successes).toBeLessThan(61);
    });

    test('an upload beyond all memory is refused before it is allocated', async () => {
      const device = kind.create({ budgetBytes: 1000 });
      const begin = (): unknown => device.beginUpload([1 << 20, 1 << 20], 'huge');
      expect(begin).toThrow(
        outOfMemory({ neededBytes: 2 ** 42, freeBytes: 1000, budgetBytes: 1000 }),
      );
      await device.dispose();
    });
  });
}

// Goal: the tile pipeline gives the kernel's bits under any completion order, and never leaves a
// request in flight.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { hasCode, SpillwayError } from '../../core/errors.js';
import { CHUNK_ELEMENTS, type ComputeDtype } from '../../core/types.js';
import { slotStagingBytes, type StagingDepth } from '../../src/optim/staging.js';
import { updateShard, type UpdateContext } from '../../src/optim/update-shard.js';
import { kernels } from '../../tiers/native/binding.js';
import type { Kernels } from '../../tiers/native/native-binding.js';
import type { SyncIo } from '../../tiers/nvme/io-backend.js';
import { LazyIo } from './lazy-io.js';
import {
  differences,
  expectedStates,
  floatsOf,
  placeShard,
  randomStates,
  SCALARS,
  sharedBytes,
  StateFile,
  stateNames,
  wordsOf,
  type Bytes,
  type PerState,
} from './shards.js';

let file: StateFile;
beforeAll(() => {
  file = new StateFile();
});
afterAll(() => file.dispose());

function contextOf(io: SyncIo | null, staging: Bytes, depth: number): UpdateContext {
  return { kernels: kernels(), io, staging, depth, isCancelled: () => false };
}

function stagingOf(dtype: ComputeDtype, depth: StagingDepth, maxShardLength: number): Bytes {
  const nvmeStates = stateNames(dtype);
  return sharedBytes(slotStagingBytes({ dtype, depth, nvmeStates, maxShardLength }));
}

const dtypes = fc.constantFrom<ComputeDtype>('float32', 'bfloat16');
const depths = fc.constantFrom<StagingDepth>(1, 2, 3);
const lengths = fc.oneof(
  fc.integer({ min: 1, max: 9000 }),
  fc.integer({ min: CHUNK_ELEMENTS - 1, max: CHUNK_ELEMENTS + 1 }),
  fc.integer({ min: 3 * CHUNK_ELEMENTS, max: 4 * CHUNK_ELEMENTS }),
);

describe('updateShard', () => {
  it('gives the bits of one kernel call for any homes, depth, length and completion order', () => {
    fc.assert(
      fc.property(
        dtypes.chain((dtype) => fc.tuple(fc.constant(dtype), fc.subarray(stateNames(dtype)))),
        depths,
        lengths,
        fc.nat(),
        ([dtype, nvme], depth, length, seed) => {
          const states = randomStates(length, dtype, seed);
          const shard = placeShard(states, nvme, file);
          const io = new LazyIo(file.fd, seed);
          const staging = stagingOf(dtype, depth, length);
          const result = updateShard(shard.job, contextOf(io, staging, depth));
          expect(differences(shard.read(), expectedStates(states))).toEqual([]);
          expect(io.inFlight).toBe(0);
          expect(result?.nvmeReadBytes).toBe(io.bytesRead);
          expect(result?.nvmeWrittenBytes).toBe(io.bytesWritten);
          expect(result?.changedCount).toBeUndefined();
        },
      ),
      { numRuns: 25 },
    );
  });

  it('moves whole padded chunks: every state in, every state but the gradient out', () => {
    const length = CHUNK_ELEMENTS + 1;
    const shard = placeShard(randomStates(length, 'float32', 1), stateNames('float32'), file);
    const io = new LazyIo(file.fd, 1);
    const result = updateShard(shard.job, contextOf(io, stagingOf('float32', 3, length), 3));
    const stateBytes = 4 * CHUNK_ELEMENTS + 4096;
    expect(result).toEqual({ nvmeReadBytes: 4 * stateBytes, nvmeWrittenBytes: 3 * stateBytes });
  });

  it('overlaps reads and writes with two or three tile sets, and nothing with one', () => {
    const length = 6 * CHUNK_ELEMENTS;
    const peak = (depth: StagingDepth): number => {
      const shard = placeShard(randomStates(length, 'float32', 2), ['exp_avg'], file);
      const io = new LazyIo(file.fd, 2);
      updateShard(shard.job, contextOf(io, stagingOf('float32', depth, length), depth));
      return io.peakInFlight;
    };
    expect([peak(1), peak(2), peak(3)]).toEqual([1, 2, 3]);
  });

  it('computes with the next tile being read, and with three sets the last one being written', () => {
    const length = 4 * CHUNK_ELEMENTS;
    const inFlight = (depth: StagingDepth): number[] => {
      const shard = placeShard(randomStates(length, 'float32', 2), ['exp_avg', 'exp_avg_sq'], file);
      const io = new LazyIo(file.fd, 2);
      const seen: number[] = [];
      const adamw: Kernels['adamw'] = (...states) => {
        seen.push(io.inFlight);
        kernels().adamw(...states);
      };
      const context = contextOf(io, stagingOf('float32', depth, length), depth);
      updateShard(shard.job, { ...context, kernels: { ...kernels(), adamw } });
      return seen;
    };
    expect(inFlight(1)).toEqual([0, 0, 0, 0]);
    expect(inFlight(2)).toEqual([2, 2, 2, 2]); // The last tile has none to read: t-1 is written.
    expect(inFlight(3)).toEqual([2, 4, 4, 4]);
  });

  it('waits for every request when one fails, and passes the failure on with its place', () => {
    fc.assert(
      fc.property(depths, fc.integer({ min: 1, max: 28 }), fc.nat(), (depth, nth, seed) => {
        const length = 3 * CHUNK_ELEMENTS + 5;
        const states = randomStates(length, 'float32', seed);
        const shard = placeShard(states, stateNames('float32'), file);
        const io = new LazyIo(file.fd, seed, nth);
        const staging = stagingOf('float32', depth, length);
        let failure: unknown;
        try {
          updateShard(shard.job, contextOf(io, staging, depth));
        } catch (error) {
          failure = error;
        }
        expect(hasCode(failure, 'IO_ERROR')).toBe(true);
        expect((failure as SpillwayError).facts).toMatchObject({ fd: file.fd, fileIndex: 0 });
        expect(io.inFlight).toBe(0);
      }),
      { numRuns: 12 },
    );
  });

  it('refuses a corrupt chunk and leaves it, and all later ones, as they were', () => {
    const length = 3 * CHUNK_ELEMENTS;
    const states = randomStates(length, 'float32', 3);
    const shard = placeShard(states, ['exp_avg_sq'], file);
    const location = shard.job.expAvgSq;
    if (location.kind !== 'nvme') throw new Error('exp_avg_sq is on NVMe');
    location.checksums[1]! ^= 1;
    const io = new LazyIo(file.fd, 3);
    const update = (): unknown =>
      updateShard(shard.job, contextOf(io, stagingOf('float32', 3, length), 3));
    expect(update).toThrow(
      expect.objectContaining({
        code: 'STATE_CORRUPT',
        facts: expect.objectContaining({
          state: 'exp_avg_sq',
          fd: file.fd,
          fileIndex: 0,
          chunk: 1,
          offset: location.offset + 4 * CHUNK_ELEMENTS,
        }) as unknown,
      }),
    );
    expect(io.inFlight).toBe(0);
    location.checksums[1]! ^= 1;
    const expected = expectedStates(states);
    const now = shard.read();
    for (const name of ['param', 'exp_avg', 'exp_avg_sq'] as const) {
      const [actual, updated, old] = [now[name]!, expected[name]!, states[name]!];
      const chunk = 4 * CHUNK_ELEMENTS;
      expect(sameBytes(actual.subarray(0, chunk), updated.subarray(0, chunk))).toBe(true);
      expect(sameBytes(actual.subarray(chunk), old.subarray(chunk))).toBe(true);
    }
  });

  it('stops between tiles when cancelled; earlier tiles are whole, checksums match', () => {
    const length = 4 * CHUNK_ELEMENTS;
    const states = randomStates(length, 'float32', 4);
    const shard = placeShard(states, ['param', 'exp_avg'], file);
    const io = new LazyIo(file.fd, 4);
    let polls = 0;
    const result = updateShard(shard.job, {
      ...contextOf(io, stagingOf('float32', 3, length), 3),
      isCancelled: () => ++polls > 2,
    });
    expect(result).toBeNull();
    expect(io.inFlight).toBe(0);
    const done = 2 * 4 * CHUNK_ELEMENTS;
    const [now, expected] = [shard.read(), expectedStates(states)];
    for (const name of ['param', 'exp_avg', 'exp_avg_sq'] as const) {
      expect(sameBytes(now[name]!.subarray(0, done), expected[name]!.subarray(0, done))).toBe(true);
      expect(sameBytes(now[name]!.subarray(done), states[name]!.subarray(done))).toBe(true);
    }
  });

  it('takes longer tiles when all states are in memory, with the same bits, and stops between', () => {
    const tile = 4 * CHUNK_ELEMENTS;
    const length = tile + 5;
    for (const dtype of ['float32', 'bfloat16'] as const) {
      const states = randomStates(length, dtype, 6);
      const context = contextOf(null, sharedBytes(0), 1);
      const whole = placeShard(states, [], file);
      updateShard(whole.job, context);
      const expected = expectedStates(states);
      expect(differences(whole.read(), expected)).toEqual([]);

      const half = placeShard(states, [], file);
      let polls = 0;
      expect(updateShard(half.job, { ...context, isCancelled: () => ++polls > 1 })).toBeNull();
      const [now, done] = [half.read().exp_avg!, 4 * tile];
      expect(sameBytes(now.subarray(0, done), expected.exp_avg!.subarray(0, done))).toBe(true);
      expect(sameBytes(now.subarray(done), states.exp_avg!.subarray(done))).toBe(true);
    }
  });

  it('counts the elements whose float32 master changed, and changes no bit by counting', () => {
    fc.assert(
      fc.property(
        dtypes,
        fc.constantFrom(1, 16_385, CHUNK_ELEMENTS + 20_000),
        fc.nat(),
        (dtype, length, seed) => {
          const states = randomStates(length, dtype, seed);
          // A third of the elements stays: no gradient, no moment, no decay.
          for (const name of ['grad', 'exp_avg'] as const) {
            const values = new Float32Array(states[name]!.buffer, 0, length);
            for (let i = 0; i < length; i += 3) values[i] = 0;
          }
          const scalars = { ...SCALARS, weightDecay: 0 };
          const shard = placeShard(states, ['param'], file, { countChanges: true, scalars });
          const io = new LazyIo(file.fd, seed);
          const result = updateShard(shard.job, contextOf(io, stagingOf(dtype, 2, length), 2));
          const expected = expectedStates(states, scalars);
          const [before, after] = [mastersOf(states, length), mastersOf(expected, length)];
          expect(differences(shard.read(), expected)).toEqual([]);
          expect(result?.changedCount).toBe(before.filter((bits, i) => bits !== after[i]).length);
          if (length > 1) expect(result?.changedCount).toBeGreaterThan(length / 3);
        },
      ),
      { numRuns: 8 },
    );
  });

  it('refuses a shard beyond its staging memory, and locations of another length', () => {
    const states = randomStates(5000, 'float32', 5);
    const { job } = placeShard(states, ['exp_avg'], file);
    const io = new LazyIo(file.fd, 5);
    const small = contextOf(io, sharedBytes(4096), 1);
    expect(() => updateShard(job, small)).toThrow(/staging memory/);
    expect(() => updateShard(job, { ...small, io: null })).toThrow(/without NVMe states/);
    const staging = contextOf(io, sharedBytes(2 ** 20), 1);
    expect(() => updateShard({ ...job, length: 4999 }, staging)).toThrow(/does not fit/);
  });
});

/** Bits of the float32 masters. */
function mastersOf(states: PerState<Bytes>, length: number): Uint32Array {
  const master = new Float32Array(length);
  if (states.master_lo === undefined) master.set(floatsOf(states.param!));
  else kernels().joinMaster(wordsOf(states.param!), wordsOf(states.master_lo), master);
  return new Uint32Array(master.buffer);
}

function sameBytes(a: Bytes, b: Bytes): boolean {
  return Buffer.compare(a, b) === 0;
}

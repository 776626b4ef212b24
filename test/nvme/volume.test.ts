// Goal: the volume returns what was written, chunk by chunk, over several paths, and notices damage.
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { CHUNK_ELEMENTS, elementBytes } from '../../core/types.js';
import { chunkCount, chunkPayloadBytes, chunkTransferBytes } from '../../tiers/nvme/chunk.js';
import { createIoBackend } from '../../tiers/nvme/create-io-backend.js';
import type { FaultPlan } from '../../tiers/nvme/fault-plan.js';
import type { IoBackend } from '../../tiers/nvme/io-backend.js';
import { createLayout, type LayoutRequest } from '../../tiers/nvme/layout.js';
import { SimulatedBackend } from '../../tiers/nvme/simulated-backend.js';
import { decodeSlotHeader } from '../../tiers/nvme/slot-header.js';
import { NvmeVolume } from '../../tiers/nvme/volume.js';
import type { NvmeLocation } from '../../tiers/state-location.js';
import {
  buffer,
  failure,
  openDescriptors,
  pattern,
  sameBytes,
  temporaryFolder,
} from './support.js';

const SMALL: LayoutRequest = {
  states: [
    { shard: 0, state: 'param', elementCount: CHUNK_ELEMENTS + 1, elementType: 'float32' },
    { shard: 0, state: 'exp_avg', elementCount: 77, elementType: 'float32' },
    { shard: 3, state: 'master_lo', elementCount: 3 * CHUNK_ELEMENTS, elementType: 'uint16' },
  ],
  scratch: [{ name: 'activation/0', elementCount: 5000, elementType: 'float32' }],
  fileCount: 2,
  slots: 1,
};

async function create(
  request: LayoutRequest,
  options: { backend?: IoBackend; budgetBytes?: number; folder?: string } = {},
): Promise<{ volume: NvmeVolume; paths: string[] }> {
  const folder = options.folder ?? temporaryFolder();
  const paths = Array.from({ length: request.fileCount }, (_, index) => join(folder, `d${index}`));
  const volume = await NvmeVolume.create({
    paths,
    runId: 'run',
    backend: options.backend ?? createIoBackend().backend,
    budgetBytes: options.budgetBytes ?? 2 ** 40,
    layout: createLayout(request),
  });
  return { volume, paths };
}

/** Fills every chunk of `location` from a pattern; returns the payloads. */
async function fill(
  volume: NvmeVolume,
  location: NvmeLocation,
  seed: number,
): Promise<Uint8Array[]> {
  const payloads: Uint8Array[] = [];
  for (let index = 0; index < chunkCount(location); index += 1) {
    const source = pattern(chunkTransferBytes(location, index), seed * 100 + index);
    payloads.push(source.slice(0, chunkPayloadBytes(location, index)));
    await volume.writeChunk(location, index, source);
  }
  return payloads;
}

async function expectContent(volume: NvmeVolume, location: NvmeLocation, payloads: Uint8Array[]) {
  for (const [index, payload] of payloads.entries()) {
    const target = buffer(chunkTransferBytes(location, index)).fill(0xee);
    await volume.readChunk(location, index, target);
    expect(sameBytes(target.subarray(0, payload.length), payload)).toBe(true);
    expect(target.subarray(payload.length).every((value) => value === 0)).toBe(true);
  }
}

function locations(volume: NvmeVolume): NvmeLocation[] {
  return [
    ...volume.layout.states.map(({ shard, state }) => volume.location(shard, state)),
    ...volume.layout.scratch.map(({ name }) => volume.scratch(name)),
  ];
}

/** Changes one byte of a file behind the volume's back. */
function flipByte(path: string, offset: number): void {
  const fd = openSync(path, 'r+');
  const byte = new Uint8Array(1);
  readSync(fd, byte, 0, 1, offset);
  byte[0]! ^= 0x10;
  writeSync(fd, byte, 0, 1, offset);
  closeSync(fd);
}

describe('NvmeVolume', () => {
  it('returns what was written, for odd lengths over several paths, and counts every byte', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 1, max: 2 * CHUNK_ELEMENTS + 9 }), {
          minLength: 1,
          maxLength: 6,
        }),
        fc.constantFrom('float32' as const, 'bfloat16' as const),
        fc.integer({ min: 1, max: 3 }),
        fc.constantFrom<1 | 2>(1, 2),
        async (lengths, elementType, fileCount, slots) => {
          const half = Math.ceil(lengths.length / 2);
          const { volume } = await create({
            states: lengths.slice(0, half).map((elementCount, shard) => ({
              shard,
              state: 'param',
              elementCount,
              elementType,
            })),
            scratch: lengths
              .slice(half)
              .map((elementCount, i) => ({ name: `s${i}`, elementCount, elementType })),
            fileCount,
            slots,
          });
          const headers = volume.layout.states.reduce((sum, r) => sum + r.headerBytes * slots, 0);
          expect(volume.bytesWritten).toBe(headers);
          const places = locations(volume);
          const contents = await Promise.all(places.map((place, i) => fill(volume, place, i)));
          for (const [i, place] of places.entries()) {
            await expectContent(volume, place, contents[i]!);
          }
          const moved = lengths.reduce(
            (sum, n) => sum + Math.ceil((n * elementBytes(elementType)) / 4096) * 4096,
            0,
          );
          expect(volume.bytesWritten).toBe(headers + moved);
          expect(volume.bytesRead).toBe(moved);
          expect(volume.liveBytes).toBe(volume.layout.totalBytes);
          await volume.dispose({ remove: true });
          expect([volume.liveBytes, volume.peakBytes]).toEqual([0, volume.layout.totalBytes]);
        },
      ),
      { numRuns: 8 },
    ));

  it('makes files of exactly the planned size, and removes them and their folders on request', async () => {
    const before = openDescriptors();
    const { volume, paths } = await create(SMALL);
    expect(volume.filePaths).toEqual(paths.map((path, i) => join(path, 'run', `shards-${i}.bin`)));
    expect(volume.filePaths.map((path) => statSync(path).size)).toEqual(volume.layout.fileBytes);
    await volume.dispose({ remove: true });
    await volume.dispose({ remove: true });
    expect(paths.map((path) => readdirSync(path))).toEqual([[], []]);
    expect(openDescriptors()).toBe(before);
    const kept = await create(SMALL);
    await kept.volume.dispose({ remove: false });
    expect(kept.volume.filePaths.every((path) => existsSync(path))).toBe(true);
  });

  it('notices one changed bit in any chunk, with path, offset and both checksums', async () => {
    const { volume } = await create(SMALL);
    for (const [seed, location] of locations(volume).entries()) {
      const payloads = await fill(volume, location, seed);
      const last = payloads.length - 1;
      const offset = location.offset + last * location.chunkBytes;
      const path = volume.filePaths[location.fileIndex]!;
      const target = buffer(chunkTransferBytes(location, last));
      // The last payload byte, and a byte of the padding.
      for (const at of new Set([payloads[last]!.length - 1, target.length - 1])) {
        flipByte(path, offset + at);
        const error = await failure(() => volume.readChunk(location, last, target));
        expect(error.code).toBe('STATE_CORRUPT');
        expect(error.facts).toMatchObject({ path, offset, expected: location.checksums[last] });
        expect(error.facts['actual']).not.toBe(error.facts['expected']);
        flipByte(path, offset + at);
        await volume.readChunk(location, last, target);
      }
    }
    await volume.dispose({ remove: true });
  });

  it('refuses to read a chunk that was never written, or whose last write failed', async () => {
    const faults: FaultPlan = { rules: [{ op: 'write', kind: 'EIO', nth: 5 }] };
    const { volume } = await create(SMALL, { backend: new SimulatedBackend(faults) });
    const location = volume.location(0, 'exp_avg');
    const bytes = buffer(4096);
    const read = () => volume.readChunk(location, 0, bytes);
    expect((await failure(read)).message).toContain('after it was written');
    // Writes one to three are headers.
    await volume.writeChunk(location, 0, bytes);
    await read();
    expect((await failure(() => volume.writeChunk(location, 0, bytes))).code).toBe('IO_ERROR');
    expect((await failure(read)).message).toContain('after it was written');
    await volume.writeChunk(location, 0, bytes);
    await read();
    await volume.dispose({ remove: true });
  });

  it('refuses a buffer that is no whole chunk, a foreign chunk and an unknown region', async () => {
    const { volume } = await create(SMALL);
    const location = volume.location(0, 'exp_avg');
    const codes = await Promise.all([
      failure(() => volume.writeChunk(location, 0, buffer(8192))),
      failure(() => volume.writeChunk(location, 1, buffer(4096))),
      failure(() => volume.location(9, 'param')),
      failure(() => volume.scratch('nothing')),
    ]);
    expect(codes.map(({ code }) => code)).toEqual(Array.from({ length: 4 }, () => 'INTERNAL'));
    await volume.dispose({ remove: true });
  });

  it('writes headers at creation and seals them with the checksums of every chunk', async () => {
    const { volume } = await create(SMALL);
    const headerOf = (index: number) => {
      const region = volume.layout.states[index]!;
      const { headerOffset } = region.slots[0]!;
      const path = volume.filePaths[region.fileIndex]!;
      const bytes = readFileSync(path).subarray(headerOffset, headerOffset + region.headerBytes);
      return decodeSlotHeader(bytes, path, headerOffset);
    };
    expect(headerOf(2)).toMatchObject({ shard: 3, state: 'master_lo', checksums: undefined });
    const incomplete = await failure(() => volume.sealHeaders(1, 5));
    expect(incomplete.message).toContain('sealed slot is complete');
    for (const location of locations(volume)) await fill(volume, location, 1);
    await volume.sealHeaders(1, 5);
    volume.layout.states.forEach((region, index) => {
      expect(headerOf(index)).toEqual({
        shard: region.shard,
        state: region.state,
        slot: 0,
        elementType: region.elementType,
        generation: 1,
        step: 5,
        payloadBytes: region.byteLength,
        chunkCount: region.chunkCount,
        checksums: Uint32Array.from(volume.location(region.shard, region.state).checksums),
      });
    });
    await volume.flush();
    await volume.dispose({ remove: true });
  });

  it('refuses a second volume of the same run and harms nothing of the first', async () => {
    const folder = temporaryFolder();
    const { volume } = await create(SMALL, { folder });
    const location = volume.location(0, 'param');
    const payloads = await fill(volume, location, 4);
    const before = openDescriptors();
    expect((await failure(() => create(SMALL, { folder }))).code).toBe('STORE_LOCKED');
    expect(openDescriptors()).toBe(before);
    await expectContent(volume, location, payloads);
    await volume.dispose({ remove: true });
  });

  it('refuses a budget one byte below the layout and takes one that equals it', async () => {
    const { totalBytes } = createLayout(SMALL);
    const folder = temporaryFolder();
    const error = await failure(() => create(SMALL, { folder, budgetBytes: totalBytes - 1 }));
    expect(error.code).toBe('BUDGET_TOO_SMALL');
    expect(error.facts).toEqual({ neededBytes: totalBytes, budgetBytes: totalBytes - 1 });
    expect(readdirSync(folder)).toEqual([]);
    const { volume } = await create(SMALL, { folder, budgetBytes: totalBytes });
    await volume.dispose({ remove: true });
  });

  it('removes what it made when the disk is full or fails during creation', async () => {
    for (const [rule, code] of [
      [{ op: 'reserve', kind: 'ENOSPC', nth: 2 }, 'NVME_FULL'],
      [{ op: 'write', kind: 'EIO', nth: 2 }, 'IO_ERROR'],
      [{ op: 'open', kind: 'EIO', nth: 2 }, 'IO_ERROR'],
    ] as const) {
      const before = openDescriptors();
      const folder = temporaryFolder();
      const backend = new SimulatedBackend({ rules: [rule] });
      expect((await failure(() => create(SMALL, { folder, backend }))).code).toBe(code);
      expect(existsSync(join(folder, 'd0', 'run'))).toBe(false);
      expect(openDescriptors()).toBe(before);
    }
  });

  it('refuses a path that cannot be a folder as PATH_UNWRITABLE', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'd0'), 'a file');
    const error = await failure(() => create(SMALL, { folder }));
    expect(error.code).toBe('PATH_UNWRITABLE');
    expect(error.facts['path']).toContain('d0');
  });
});

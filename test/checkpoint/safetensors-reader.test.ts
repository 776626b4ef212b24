// Goal: a safetensors file is read exactly, or refused with the fact; never a crash, never a hang.
import { renameSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { isCoded } from '../../core/errors.js';
import { parseHeader, parseHeaderLength } from '../../src/checkpoint/safetensors-header.js';
import { SafetensorsFile } from '../../src/checkpoint/safetensors-reader.js';
import { fileBytes, floatFile, headerOfX } from './safetensors-file.js';
import { openDescriptorCount, temporaryFolder } from './temporary-folder.js';

const folder = temporaryFolder();
const SIX_FLOATS = new Uint8Array(Float32Array.of(0, 1, 2, 3, 4, 5).buffer);
let fileCount = 0;

function put(bytes: Uint8Array): string {
  const path = join(folder, `${fileCount++}.safetensors`);
  writeFileSync(path, bytes);
  return path;
}

async function readAll(path: string, name: string, length: number): Promise<number[]> {
  const file = await SafetensorsFile.open(path);
  const target = new Float32Array(length);
  await file.readElements(file.entry(name)!, 0, target);
  await file.close();
  return [...target];
}

/** The same checks as `SafetensorsFile.open`, without a file. */
function parse(bytes: Uint8Array): ReturnType<typeof parseHeader> {
  const headerBytes = parseHeaderLength(bytes.subarray(0, 8), bytes.length, 'memory');
  return parseHeader(bytes.subarray(8, 8 + headerBytes), bytes.length, 'memory');
}

describe('reading', () => {
  it('reads float32 ranges into memory that threads share', async () => {
    const file = await SafetensorsFile.open(put(floatFile({ a: [5], b: [2, 3] })));
    const target = new Float32Array(new SharedArrayBuffer(12));
    await file.readElements(file.entry('b')!, 2, target);
    expect([...target]).toEqual([7, 8, 9]);
    await file.close();
  });

  it('widens bfloat16 and float16 exactly, at odd file offsets and across bounce buffers', async () => {
    const length = 524_288 + 77;
    const bits = Uint16Array.from({ length }, (_, index) => (index * 31) & 0x7f7f);
    const halves = Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00);
    const data = new Uint8Array([
      1,
      ...new Uint8Array(halves.buffer),
      ...new Uint8Array(bits.buffer),
    ]);
    const json = JSON.stringify({
      odd: { dtype: 'U8', shape: [1], data_offsets: [0, 1] },
      half: { dtype: 'F16', shape: [5], data_offsets: [1, 11] },
      brain: { dtype: 'BF16', shape: [length], data_offsets: [11, 11 + 2 * length] },
    });
    const path = put(fileBytes(json, data));
    expect(await readAll(path, 'half', 5)).toEqual([1, -2, 2 ** -24, 65504, Infinity]);
    const wide = new Uint32Array(Float32Array.from(await readAll(path, 'brain', length)).buffer);
    expect(wide.every((word, index) => word === (bits[index] ?? 0) * 65536)).toBe(true);
  });

  it('reads 16-bit elements as bits, signalling NaN patterns included', async () => {
    const bits = Uint16Array.of(0x7f81, 0xffff, 0x0001);
    const json = JSON.stringify({ m: { dtype: 'U16', shape: [3], data_offsets: [0, 6] } });
    const file = await SafetensorsFile.open(put(fileBytes(json, new Uint8Array(bits.buffer))));
    const target = new Uint16Array(2);
    await file.readBits(file.entry('m')!, 0, target);
    expect([...target]).toEqual([0x7f81, 0xffff]);
    await expect(file.readElements(file.entry('m')!, 0, new Float32Array(1))).rejects.toMatchObject(
      { code: 'CHECKPOINT_MISMATCH' },
    );
    await file.close();
  });

  it('accepts scalars, empty tensors, empty files of tensors and a space-padded header', async () => {
    const json = JSON.stringify({
      scalar: { dtype: 'F32', shape: [], data_offsets: [0, 4] },
      empty: { dtype: 'F32', shape: [0, 7], data_offsets: [4, 4] },
      rest: { dtype: 'F32', shape: [5], data_offsets: [4, 24] },
      __metadata__: { format: 'pt' },
    });
    const path = put(fileBytes(`${json}      `, SIX_FLOATS));
    expect(await readAll(path, 'scalar', 1)).toEqual([0]);
    expect(await readAll(path, 'empty', 0)).toEqual([]);
    expect(await readAll(path, 'rest', 5)).toEqual([1, 2, 3, 4, 5]);
    expect((await SafetensorsFile.open(put(fileBytes('{}', new Uint8Array())))).entries).toEqual(
      [],
    );
  });

  it('holds one descriptor per file between the first read and close', async () => {
    const path = put(floatFile({ a: [4] }));
    const before = openDescriptorCount(folder);
    const file = await SafetensorsFile.open(path);
    expect(openDescriptorCount(folder)).toBe(before);
    await Promise.all(
      [0, 1, 2].map((offset) => file.readElements(file.entries[0]!, offset, new Float32Array(1))),
    );
    expect(openDescriptorCount(folder)).toBe(before + 1);
    await file.close();
    await file.close();
    expect(openDescriptorCount(folder)).toBe(before);
  });

  it('reports a file that shrank after it was opened', async () => {
    const path = put(floatFile({ a: [400] }));
    const early = await SafetensorsFile.open(path);
    const late = await SafetensorsFile.open(path);
    await early.readElements(early.entries[0]!, 0, new Float32Array(1));
    truncateSync(path, 200);
    for (const file of [early, late]) {
      await expect(
        file.readElements(file.entries[0]!, 300, new Float32Array(100)),
      ).rejects.toMatchObject({ code: 'CHECKPOINT_CORRUPT' });
      await file.close();
    }
  });

  it('reports a file that was replaced by another of its size before the first read', async () => {
    const path = put(floatFile({ a: [4] }));
    const file = await SafetensorsFile.open(path);
    renameSync(put(floatFile({ b: [4] })), path);
    await expect(file.readElements(file.entries[0]!, 0, new Float32Array(1))).rejects.toMatchObject(
      { code: 'CHECKPOINT_CORRUPT' },
    );
    expect(openDescriptorCount(folder)).toBe(0);
    await file.close();
  });

  it('reports a missing file and a folder in its place', async () => {
    await expect(SafetensorsFile.open(join(folder, 'none'))).rejects.toMatchObject({
      code: 'MODEL_NOT_FOUND',
    });
    await expect(SafetensorsFile.open(folder)).rejects.toMatchObject({
      code: 'CHECKPOINT_CORRUPT',
    });
  });
});

const TWO = { dtype: 'F32', shape: [3] };

const CORRUPTIONS: readonly (readonly [string, Uint8Array, RegExp])[] = [
  ['an empty file', new Uint8Array(), /shorter than the 8 bytes/],
  ['a file of seven bytes', new Uint8Array(7), /shorter than the 8 bytes/],
  ['a header length of 2^64 - 1', fileBytes('{}', SIX_FLOATS, 2n ** 64n - 1n), /limit/],
  ['a header length beyond the limit', fileBytes('{}', SIX_FLOATS, 100_000_001n), /limit/],
  ['a header length beyond the file', fileBytes('{}', SIX_FLOATS, 27n), /beyond the end/],
  ['a header length of zero', fileBytes('{}', SIX_FLOATS, 0n), /begin with/],
  ['a header that is no JSON', fileBytes('{"x":', SIX_FLOATS), /not valid JSON/],
  ['a header that is an array', fileBytes('[]', SIX_FLOATS), /begin with/],
  ['a header with leading space', fileBytes(` ${headerOfX()}`, SIX_FLOATS), /begin with/],
  ['a header cut off', fileBytes(headerOfX(), SIX_FLOATS, 20n), /not valid JSON/],
  ['a tensor that is no object', fileBytes('{"x":[]}', new Uint8Array()), /not described/],
  ['an unknown dtype', fileBytes(headerOfX({ dtype: 'F31' }), SIX_FLOATS), /unknown dtype "F31"/],
  ['an inherited name as dtype', fileBytes(headerOfX({ dtype: 'toString' }), SIX_FLOATS), /dtype/],
  ['an object as dtype', fileBytes(headerOfX({ dtype: { toString: 1 } }), SIX_FLOATS), /dtype/],
  ['a dtype of another size', fileBytes(headerOfX({ dtype: 'F64' }), SIX_FLOATS), /length/],
  ['a shape of another size', fileBytes(headerOfX({ shape: [2, 4] }), SIX_FLOATS), /length/],
  ['a negative dimension', fileBytes(headerOfX({ shape: [-2, -3] }), SIX_FLOATS), /shape/],
  ['a fractional dimension', fileBytes(headerOfX({ shape: [1.5, 4] }), SIX_FLOATS), /shape/],
  ['a shape as text', fileBytes(headerOfX({ shape: '23' }), SIX_FLOATS), /shape/],
  ['a shape beyond 2^53', fileBytes(headerOfX({ shape: [2 ** 40, 2 ** 40] }), SIX_FLOATS), /2\^53/],
  [
    'an overflow that a zero would hide',
    fileBytes(headerOfX({ shape: [2 ** 40, 2 ** 40, 0], data_offsets: [0, 0] }), SIX_FLOATS),
    /2\^53/,
  ],
  ['no offsets', fileBytes(headerOfX({ data_offsets: undefined }), SIX_FLOATS), /data_offsets/],
  ['three offsets', fileBytes(headerOfX({ data_offsets: [0, 1, 2] }), SIX_FLOATS), /data_offsets/],
  ['a negative offset', fileBytes(headerOfX({ data_offsets: [-24, 0] }), SIX_FLOATS), /offsets/],
  ['offsets swapped', fileBytes(headerOfX({ data_offsets: [24, 0] }), SIX_FLOATS), /before it/],
  ['data beyond the file', fileBytes(headerOfX(), SIX_FLOATS.subarray(4)), /beyond the end/],
  ['bytes behind the data', fileBytes(headerOfX(), new Uint8Array(25)), /behind the last/],
  [
    'overlapping tensors',
    fileBytes(
      JSON.stringify({
        a: { ...TWO, data_offsets: [0, 12] },
        b: { ...TWO, data_offsets: [8, 20] },
      }),
      SIX_FLOATS,
    ),
    /"b" overlaps/,
  ],
  [
    'a hole between tensors',
    fileBytes(
      JSON.stringify({
        a: { dtype: 'F32', shape: [2], data_offsets: [0, 8] },
        b: { ...TWO, data_offsets: [12, 24] },
      }),
      SIX_FLOATS,
    ),
    /unused bytes lie in front of tensor "b"/,
  ],
  [
    'a name used twice',
    fileBytes(`${headerOfX().slice(0, -1)},${headerOfX().slice(1)}`, SIX_FLOATS),
    /key "x" twice/,
  ],
  [
    'a name used twice in two spellings',
    fileBytes(
      `${headerOfX().slice(0, -1)},${headerOfX().slice(1).replace('x', '\\u0078')}`,
      SIX_FLOATS,
    ),
    /key "x" twice/,
  ],
  [
    'a field used twice',
    fileBytes(headerOfX().replace('"dtype"', '"dtype":"F16","dtype"'), SIX_FLOATS),
    /key "dtype" twice/,
  ],
  [
    'metadata that is not text',
    fileBytes('{"__metadata__":{"a":1}}', new Uint8Array()),
    /__metadata__/,
  ],
];

/** Element sizes of the dtypes that a few changed bytes can turn F32 into. */
const ELEMENT_BYTES: Readonly<Record<string, number>> = {
  ...{ U8: 1, I8: 1, F16: 2, I16: 2, U16: 2, F32: 4, I32: 4, U32: 4 },
  ...{ F64: 8, I64: 8, U64: 8, C64: 8 },
};

describe('refusing', () => {
  it.each(CORRUPTIONS)('refuses %s', async (_, bytes, fact) => {
    const path = put(bytes);
    const before = openDescriptorCount(folder);
    const error: unknown = await SafetensorsFile.open(path).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'CHECKPOINT_CORRUPT' });
    expect((error as Error).message).toMatch(fact);
    expect((error as Error).message).toContain(path);
    expect(openDescriptorCount(folder)).toBe(before);
  });

  it('refuses a header of invalid UTF-8', async () => {
    const bytes = fileBytes(headerOfX(), SIX_FLOATS);
    bytes[10] = 0xff;
    await expect(SafetensorsFile.open(put(bytes))).rejects.toThrow(/UTF-8/);
  });

  it('refuses or reads every mutation of a valid file, with entries that lie within it', () => {
    const valid = floatFile({ 'h.0.w': [3, 2], 'h.0.b': [2], 'ln_f.w': [1, 1, 4], e: [0] });
    const byteChange = fc.record({
      at: fc.nat(valid.length - 1),
      // Digits, quotes and brackets reach deeper into the checks than random bytes do.
      byte: fc.oneof(fc.nat(255), fc.constantFrom(...Buffer.from('0123456789",:[]{}-.e\\'))),
    });
    let refusedCount = 0;
    let readCount = 0;
    fc.assert(
      fc.property(
        fc.array(byteChange, { minLength: 1, maxLength: 3 }),
        fc.option(fc.nat(valid.length), { freq: 5 }),
        (changes, cut) => {
          const bytes = valid.slice(0, cut ?? valid.length);
          for (const { at, byte } of changes) if (at < bytes.length) bytes[at] = byte;
          try {
            const { entries } = parse(bytes);
            let at = 8 + Number(new DataView(bytes.buffer).getBigUint64(0, true));
            for (const { begin, end, shape, dtype } of entries) {
              expect(begin).toBe(at);
              expect(end - begin).toBe(shape.reduce((a, b) => a * b, ELEMENT_BYTES[dtype] ?? NaN));
              at = end;
            }
            expect(at).toBe(bytes.length);
            readCount += 1;
          } catch (error) {
            if (!isCoded(error)) throw error;
            expect(error.code).toBe('CHECKPOINT_CORRUPT');
            refusedCount += 1;
          }
        },
      ),
      { numRuns: 6000 },
    );
    expect(refusedCount).toBeGreaterThan(1000);
    expect(readCount).toBeGreaterThan(100);
  });

  it('refuses every truncation of a valid file', () => {
    const valid = floatFile({ a: [3, 2], b: [2] });
    for (let length = 0; length < valid.length; length += 1) {
      expect(() => parse(valid.subarray(0, length))).toThrow(/memory: /);
    }
    expect(parse(valid).entries.map(({ name }) => name)).toEqual(['a', 'b']);
  });
});

// Goal: byte sizes mean what people write, and nothing else is taken for one.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { alignDown, alignUp, formatBudget, formatBytes, parseByteSize } from '../../core/bytes.js';

describe('parseByteSize', () => {
  it.each([
    ['0', 0],
    [4096, 4096],
    ['4096', 4096],
    ['1B', 1],
    ['8GiB', 8 * 2 ** 30],
    ['8 gib', 8 * 2 ** 30],
    [' 1.5 MiB ', 1.5 * 2 ** 20],
    ['10GB', 10e9],
    ['10kB', 10_000],
    ['2TiB', 2 ** 41],
    ['1e6', 1_000_000],
  ])('reads %j as %d bytes', (text, bytes) => {
    expect(parseByteSize(text)).toBe(bytes);
  });

  it.each([
    '',
    ' ',
    'GiB',
    '-1',
    '-1GiB',
    '+1',
    '1 G iB',
    '8GiBs',
    '8G',
    '8Gb/s',
    '0x10',
    '1,5GiB',
    '1.GiB',
    'NaN',
    'Infinity',
    '9007199254740992',
    '9e99',
    '8192TiB',
    '1GiB 2MiB',
    '١GiB',
  ])('refuses %j with a remedy', (text) => {
    expect(() => parseByteSize(text)).toThrow(
      expect.objectContaining({
        code: 'BYTE_SIZE_INVALID',
        message: expect.stringContaining('; write a number of bytes') as string,
      }),
    );
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, -4096])('refuses the number %d', (value) => {
    expect(() => parseByteSize(value)).toThrow(
      expect.objectContaining({ code: 'BYTE_SIZE_INVALID' }),
    );
  });

  it('reads whole numbers of every unit exactly, in any case and spacing', () => {
    const units = { b: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, kb: 1e3, mb: 1e6, gb: 1e9 };
    fc.assert(
      fc.property(
        fc.nat(4_000_000),
        fc.constantFrom(...Object.entries(units)),
        fc.boolean(),
        fc.nat(3),
        (count, [unit, factor], upper, spaces) => {
          const text = `${count}${' '.repeat(spaces)}${upper ? unit.toUpperCase() : unit}`;
          expect(parseByteSize(text)).toBe(count * factor);
        },
      ),
    );
  });
});

describe('formatBytes', () => {
  it.each([
    [0, '0 B'],
    [1023, '1023 B'],
    [1024, '1 KiB'],
    [1536, '1.5 KiB'],
    [5 * 2 ** 20, '5 MiB'],
    [2 ** 50, '1024 TiB'],
  ])('prints %d as %j', (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });

  it('prints what parseByteSize reads back, within the two decimals', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 52 }), (bytes) => {
        const error = Math.abs(parseByteSize(formatBytes(bytes)) - bytes);
        // Half of the last decimal, of a value that is at least 1 in its unit.
        expect(error).toBeLessThanOrEqual(bytes * 0.005 + 1);
      }),
    );
  });
});

it('aligns up and down to the nearest multiples', () => {
  const alignments = fc.constantFrom(1, 8, 512, 4096, 2 ** 21);
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2 ** 40 }), alignments, (value, alignment) => {
      const [down, up] = [alignDown(value, alignment), alignUp(value, alignment)];
      expect([down % alignment, up % alignment]).toEqual([0, 0]);
      expect(down <= value && value <= up).toBe(true);
      expect(up - down).toBe(value % alignment === 0 ? 0 : alignment);
    }),
  );
});

describe('formatBudget', () => {
  it('prints what is enough when it is read again, and no more than a hundredth of a unit above', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 43 }), (bytes) => {
        const printed = formatBudget(bytes);
        expect(parseByteSize(printed)).toBeGreaterThanOrEqual(bytes);
        const unit = parseByteSize(printed.replace(/^[\d.]+/, '1'));
        expect(parseByteSize(printed) - bytes).toBeLessThanOrEqual(unit / 100 + 1);
      }),
    );
  });

  it('rounds up where formatBytes would say too little', () => {
    expect(formatBytes(6_660_096)).toBe('6.35 MiB');
    expect(formatBudget(6_660_096)).toBe('6.36 MiB');
    expect(formatBudget(659_968)).toBe('644.5 KiB');
    expect(formatBudget(2 ** 30 + 1)).toBe('1.01 GiB');
    expect(formatBudget(7)).toBe('7 B');
  });
});

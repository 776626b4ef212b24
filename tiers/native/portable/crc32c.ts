/**
 * @file CRC-32C (Castagnoli, RFC 3720) by eight tables; twin of native/crc32c.cc.
 */
import type { Kernels } from '../native-binding.js';
import { checkType } from './check-arguments.js';

/** The polynomial 0x1EDC6F41, bits reversed. */
const POLYNOMIAL = 0x82f6_3b78;

/** Table k maps a byte to the register after it and k zero bytes. */
const TABLES = makeTables();

function makeTables(): Int32Array[] {
  const first = Int32Array.from({ length: 256 }, (_, byte) => {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ ((crc & 1) === 1 ? POLYNOMIAL : 0);
    return crc;
  });
  const tables = [first];
  for (let k = 1; k < 8; k++) {
    tables.push(tables[k - 1]!.map((last) => (last >>> 8) ^ first[last & 0xff]!));
  }
  return tables;
}

/** See `Kernels.crc32c`. */
export const crc32c: Kernels['crc32c'] = (bytes, seed = 0) => {
  checkType('bytes', bytes, Uint8Array);
  if (typeof seed !== 'number') throw new TypeError('seed must be a number');
  const [t0, t1, t2, t3, t4, t5, t6, t7] = TABLES as [
    ...[Int32Array, Int32Array, Int32Array, Int32Array],
    ...[Int32Array, Int32Array, Int32Array, Int32Array],
  ];
  let crc = ~seed;
  let i = 0;
  for (; i + 8 <= bytes.length; i += 8) {
    crc =
      t7[(crc ^ bytes[i]!) & 0xff]! ^
      t6[((crc >>> 8) ^ bytes[i + 1]!) & 0xff]! ^
      t5[((crc >>> 16) ^ bytes[i + 2]!) & 0xff]! ^
      t4[((crc >>> 24) ^ bytes[i + 3]!) & 0xff]! ^
      t3[bytes[i + 4]!]! ^
      t2[bytes[i + 5]!]! ^
      t1[bytes[i + 6]!]! ^
      t0[bytes[i + 7]!]!;
  }
  for (; i < bytes.length; i++) crc = (crc >>> 8) ^ t0[(crc ^ bytes[i]!) & 0xff]!;
  return ~crc >>> 0;
};

/**
 * Checks the split master exhaustively: all 2^32 float32 patterns through the addon's splitMaster
 * and joinMaster on every instruction set of this CPU (about a minute each on one core).
 *
 * Usage: node scripts/check-split-master.mjs [isa …]. Exits 1 at the first pattern that is wrong.
 * `npm test` runs a stride of the same patterns on the addon and on the TypeScript twins.
 */
import { createRequire } from 'node:module';

const addon = createRequire(import.meta.url)('../build/spillway.node');
const BATCH = 2 ** 22;
const NAN_BITS = 0x7fc0_0000;

function check(isa) {
  addon.setIsa(isa);
  const bits = new Uint32Array(BATCH);
  const master = new Float32Array(bits.buffer);
  const param = new Uint16Array(BATCH);
  const low = new Uint16Array(BATCH);
  const joined = new Float32Array(BATCH);
  const joinedBits = new Uint32Array(joined.buffer);
  for (let start = 0; start < 2 ** 32; start += BATCH) {
    for (let i = 0; i < BATCH; i++) bits[i] = start + i;
    addon.splitMaster(master, param, low);
    addon.joinMaster(param, low, joined);
    for (let i = 0; i < BATCH; i++) {
      const pattern = bits[i];
      const expected = (pattern & 0x7fff_ffff) > 0x7f80_0000 ? NAN_BITS : pattern;
      const high = ((expected + 0x8000) >>> 16) & 0xffff;
      if (joinedBits[i] !== expected || param[i] !== high || low[i] !== (expected & 0xffff)) {
        console.error(`${isa}: pattern 0x${pattern.toString(16)} is wrong`);
        process.exit(1);
      }
    }
  }
  console.log(`${isa}: all 2^32 patterns are right`);
}

const chosen = process.argv.slice(2);
for (const isa of chosen.length > 0 ? chosen : addon.isaList()) check(isa);

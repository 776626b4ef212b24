// Goal: the addon loads everywhere, says what it is, and is never replaced in silence.
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import {
  ABI_VERSION,
  checkAbi,
  isa,
  kernels,
  native,
  nativePath,
  nativeStatus,
} from '../../tiers/native/binding.js';
import { KERNEL_NAMES } from '../../tiers/native/native-binding.js';
import { portableKernels } from '../../tiers/native/portable/kernels.js';

const run = promisify(execFile);
const bindingUrl = new URL('../../tiers/native/binding.ts', import.meta.url).href;

/** What a fresh process with `variables` sees: status and ISA, or the error's code and message. */
async function inProcess(variables: Record<string, string>): Promise<Record<string, unknown>> {
  const code = `
    const { nativeStatus, isa, kernels } = await import(${JSON.stringify(bindingUrl)});
    try {
      const crc = kernels().crc32c(new Uint8Array(32));
      console.log(JSON.stringify({ ...nativeStatus(), runs: isa(), crc }));
    } catch (error) {
      console.log(JSON.stringify({ code: error.code, message: error.message }));
    }`;
  const args = ['--import', 'tsx', '--input-type=module', '-e', code];
  const { stdout } = await run(process.execPath, args, { env: { ...process.env, ...variables } });
  return JSON.parse(stdout) as Record<string, unknown>;
}

describe('names', () => {
  test('the TypeScript twins are exactly the kernels', () => {
    expect(Object.keys(portableKernels).sort()).toEqual([...KERNEL_NAMES].sort());
    expect(Object.keys(kernels()).sort()).toEqual([...KERNEL_NAMES].sort());
  });

  test.skipIf(native() === undefined)('the addon exports every kernel and the ABI version', () => {
    const addon = native()!;
    const functions = Object.entries(addon).filter(([, value]) => typeof value === 'function');
    expect(functions.map(([name]) => name)).toEqual(expect.arrayContaining([...KERNEL_NAMES]));
    expect(addon.abiVersion).toBe(ABI_VERSION);
  });
});

describe('status', () => {
  test('an addon that was built is loaded, and one that was not is named', () => {
    const expected = existsSync(nativePath()) ? 'loaded' : 'not-built';
    expect(process.env['SPILLWAY_NATIVE'] === 'off' ? 'off' : expected).toBe(nativeStatus().kind);
    expect(isa() === 'javascript').toBe(native() === undefined);
  });

  test('an addon of another layout is refused', () => {
    const refusal = expect.objectContaining({ code: 'NATIVE_ABI_MISMATCH' }) as Error;
    expect(() => checkAbi(ABI_VERSION + 1, 'x')).toThrow(refusal);
    expect(() => checkAbi(ABI_VERSION, 'x')).not.toThrow();
  });

  test.skipIf(native() === undefined)('an unknown ISA throws and changes nothing', () => {
    const before = isa();
    expect(() => native()!.setIsa('avx9000' as 'avx2')).toThrow(RangeError);
    expect(isa()).toBe(before);
  });
});

describe('environment', () => {
  test('an addon that SPILLWAY_ADDON names is loaded, or refused: nothing stands in', async () => {
    const missing = await inProcess({ SPILLWAY_ADDON: 'no/such.node' });
    expect(missing).toMatchObject({ code: 'CONFIG_INVALID' });
    expect(missing['message']).toContain(join(process.cwd(), 'no/such.node'));
    const folder = mkdtempSync(join(tmpdir(), 'spillway-addon-'));
    const path = join(folder, 'other.node');
    writeFileSync(path, 'no addon');
    expect(await inProcess({ SPILLWAY_ADDON: path })).toMatchObject({ code: 'CONFIG_INVALID' });
    if (native() !== undefined) {
      cpSync(nativePath(), path);
      expect(await inProcess({ SPILLWAY_ADDON: path })).toMatchObject({ kind: 'loaded', path });
    }
    rmSync(folder, { recursive: true });
  });

  test('SPILLWAY_NATIVE=off runs TypeScript and says so', async () => {
    const result = await inProcess({ SPILLWAY_NATIVE: 'off' });
    expect(result).toMatchObject({ kind: 'off', runs: 'javascript', crc: 0x8a91_36aa });
  });

  test('SPILLWAY_ISA=portable runs the scalar kernels', async () => {
    const result = await inProcess({ SPILLWAY_ISA: 'portable' });
    expect(result['crc']).toBe(0x8a91_36aa);
    expect(result['runs']).toBe(native() ? 'portable' : 'javascript');
  });

  test('an ISA that is not there and an unknown switch are refused by name', async () => {
    const [isaResult, switchResult] = await Promise.all([
      inProcess({ SPILLWAY_ISA: 'avx9000' }),
      inProcess({ SPILLWAY_NATIVE: 'maybe' }),
    ]);
    expect(isaResult).toMatchObject({ code: 'CONFIG_INVALID' });
    expect(isaResult['message']).toContain('avx9000');
    expect(switchResult).toMatchObject({ code: 'CONFIG_INVALID' });
  });
});

test('worker threads load it too, and may end with it loaded', async () => {
  // Node 20 refuses a TypeScript file as a worker's entry, with or without a loader.
  const url = new URL('./kernel-worker.ts', import.meta.url).href;
  const code = `import('tsx/esm/api').then(({ register }) => {
    register();
    return import(${JSON.stringify(url)});
  });`;
  const messages = await Promise.all(
    [1, 2].map(
      () =>
        new Promise((settle, fail) => {
          const worker = new Worker(code, { eval: true, execArgv: [] });
          worker.once('error', fail);
          worker.once('message', (message) => {
            worker.once('exit', () => settle(message));
          });
        }),
    ),
  );
  const expected = [isa(), 0x8a91_36aa];
  expect(messages).toEqual([expected, expected]);
});

describe('scripts/build-native.mjs', () => {
  let folder = '';

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'spillway-build-'));
    mkdirSync(join(folder, 'scripts'));
    mkdirSync(join(folder, 'native'));
    cpSync('scripts/build-native.mjs', join(folder, 'scripts/build-native.mjs'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const build = (variables: Record<string, string> = {}, ...args: string[]) =>
    run(process.execPath, [join(folder, 'scripts/build-native.mjs'), ...args], {
      env: { ...process.env, ...variables },
    });

  test('without a compiler it warns in one line, exits 0 and leaves no addon', async () => {
    writeFileSync(join(folder, 'native/empty.cc'), '');
    mkdirSync(join(folder, 'build'), { recursive: true });
    writeFileSync(join(folder, 'build/spillway.node'), 'of older sources');
    const { stderr } = await build({ CXX: 'no-such-compiler' });
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(stderr).toMatch(/^warning: .*no C\+\+ compiler.*no-such-compiler/);
    expect(existsSync(join(folder, 'build/spillway.node'))).toBe(false);
  });

  test('sources that do not compile give one line too, and status 1 with --strict', async () => {
    writeFileSync(join(folder, 'native/empty.cc'), 'this is no C++');
    const { stderr } = await build();
    expect(stderr.trim().split('\n')).toHaveLength(1);
    const strict = await build({}, '--strict').catch((error: unknown) => error);
    expect(strict).toMatchObject({ code: 1 });
  });
});

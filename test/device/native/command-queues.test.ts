// Goal: queues keep their order, wait for each other's events, bound what is in flight, block
// nobody who does not ask, and end cleanly whatever is queued.
import { execFile } from 'node:child_process';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  COMPUTE,
  CommandQueues,
  DOWNLOAD,
  QUEUES,
  SOURCE,
  UPLOAD,
} from '../../../tiers/device/native/command-queues.js';
import { kernelIdOf } from '../../../tiers/device/native/kernel-id.js';
import { native, nativePath } from '../../../tiers/native/binding.js';

const hasAddon = native() !== undefined;
const ARENA_BYTES = 1 << 22;

const fill = (queues: CommandQueues, offset: number, length: number, value: number): void =>
  queues.launch(kernelIdOf('fillFloat'), [queues.baseAddress + offset, length, value]);
const pause = (queues: CommandQueues, ms: number): void =>
  queues.launch(kernelIdOf('sleepFor'), [ms]);
const bytesOf = (values: Float32Array): Uint8Array => new Uint8Array(values.buffer);

describe.skipIf(!hasAddon)('command queues', () => {
  let queues: CommandQueues;
  beforeEach(() => {
    queues = CommandQueues.create(ARENA_BYTES, 2);
  });
  afterEach(async () => {
    await queues.close();
  });

  function read(offset: number, length: number): Float32Array {
    for (const queue of QUEUES) queues.block(queue);
    const target = new Float32Array(length);
    queues.read(queues.baseAddress + offset, bytesOf(target));
    return target;
  }

  test('kernels run in the order of their launches', () => {
    pause(queues, 5);
    for (let value = 1; value <= 2000; value++) fill(queues, 0, 16, value);
    expect(read(0, 16)).toEqual(new Float32Array(16).fill(2000));
    // Each reads what the one before wrote: copies interleaved with fills.
    for (let value = 1; value <= 500; value++) {
      fill(queues, 0, 1, value);
      queues.write(queues.baseAddress + 64 + value * 4, bytesOf(Float32Array.of(-value)));
    }
    expect(read(0, 1)[0]).toBe(500);
    expect([...read(64, 501)].slice(1)).toEqual(Array.from({ length: 500 }, (_, i) => -(i + 1)));
  });

  test('a launch returns before its kernel has run, and numbers count commands', async () => {
    const before = performance.now();
    pause(queues, 100);
    expect(performance.now() - before).toBeLessThan(50);
    expect(queues.submitted(COMPUTE)).toBe(1);
    expect(queues.completed(COMPUTE)).toBe(0);
    await queues.done(COMPUTE, 1);
    expect(performance.now() - before).toBeGreaterThan(99);
    expect(queues.completed(COMPUTE)).toBe(1);
  });

  test('a queue waits for an event of another; without it, it overtakes', async () => {
    const address = queues.baseAddress;
    const before = new Float32Array(4);
    const after = new Float32Array(4);
    pause(queues, 60);
    fill(queues, 0, 4, 7);
    await queues.download(address, bytesOf(before));
    expect([...before]).toEqual([0, 0, 0, 0]);
    queues.wait(DOWNLOAD, COMPUTE, queues.submitted(COMPUTE));
    await queues.download(address, bytesOf(after));
    expect([...after]).toEqual([7, 7, 7, 7]);
  });

  test('an event that was waited for is not waited for again', () => {
    pause(queues, 1);
    queues.wait(UPLOAD, COMPUTE, 1);
    queues.wait(UPLOAD, COMPUTE, 1);
    queues.wait(UPLOAD, COMPUTE, 0);
    queues.wait(UPLOAD, UPLOAD, 99);
    expect(queues.submitted(UPLOAD)).toBe(1);
  });

  test('a chain through all three queues carries values in order', async () => {
    const address = queues.baseAddress;
    const source = Float32Array.from({ length: 1024 }, (_, i) => i);
    const target = new Float32Array(1024);
    for (let round = 0; round < 50; round++) {
      source[0] = round;
      const uploaded = queues.upload(address, bytesOf(source), SOURCE.bytes);
      queues.wait(COMPUTE, UPLOAD, queues.submitted(UPLOAD));
      fill(queues, 4, 1, -round);
      queues.wait(DOWNLOAD, COMPUTE, queues.submitted(COMPUTE));
      const downloaded = queues.download(address, bytesOf(target));
      queues.wait(UPLOAD, DOWNLOAD, queues.submitted(DOWNLOAD));
      await uploaded;
      source.fill(Number.NaN);
      await downloaded;
      expect([...target.subarray(0, 3)]).toEqual([round, -round, 2]);
      for (let i = 0; i < 1024; i++) source[i] = i;
    }
  });

  test('promises resolve in the order of their events, in few batches', async () => {
    const order: number[] = [];
    const waits: Promise<void>[] = [];
    for (let index = 1; index <= 200; index++) {
      pause(queues, 0.05);
      waits.push(queues.done(COMPUTE, index).then(() => void order.push(index)));
    }
    // Asked for last, happens first.
    waits.push(queues.done(COMPUTE, 1).then(() => void order.push(0.5)));
    await Promise.all(waits);
    expect(order.filter((index) => index >= 1)).toEqual(
      Array.from({ length: 200 }, (_, i) => i + 1),
    );
    expect(order.indexOf(0.5)).toBeLessThan(order.length);
  });

  test('a full queue makes the launch wait instead of growing', async () => {
    const capacity = 8192;
    pause(queues, 80);
    const before = performance.now();
    for (let value = 0; value < capacity - 1; value++) fill(queues, 0, 1, value);
    expect(performance.now() - before).toBeLessThan(79);
    expect(queues.completed(COMPUTE)).toBe(0);
    // The 8193rd finds no room before the pause is over.
    fill(queues, 0, 1, -1);
    expect(queues.completed(COMPUTE)).toBeGreaterThan(0);
    await queues.drain();
    expect(read(0, 1)[0]).toBe(-1);
  });

  test('many arguments wrap around their ring unharmed', async () => {
    const ones = Array.from({ length: 4000 }, () => 1);
    for (let value = 1; value <= 300; value++) {
      queues.launch(kernelIdOf('fillFloat'), [
        queues.baseAddress + value * 4,
        1,
        value,
        ...ones.slice(0, (value * 37) % 4000),
      ]);
    }
    const expected = Array.from({ length: 300 }, (_, i) => i + 1);
    expect([...read(4, 300)]).toEqual(expected);
    expect(() =>
      queues.launch(
        0,
        Array.from({ length: 4097 }, () => 0),
      ),
    ).toThrow('bounded');
  });

  test('the event loop turns while a long kernel runs', async () => {
    const delay = monitorEventLoopDelay({ resolution: 1 });
    pause(queues, 300);
    delay.enable();
    let turns = 0;
    const timer = setInterval(() => (turns += 1), 1);
    await queues.drain();
    clearInterval(timer);
    delay.disable();
    expect(turns).toBeGreaterThan(50);
    // A blocked loop would show the kernel's 300 ms.
    expect(delay.max / 1e6).toBeLessThan(150);
  });

  test('close lets everything run that was submitted, and resolves its promises', async () => {
    const target = new Float32Array(4);
    pause(queues, 30);
    fill(queues, 0, 4, 3);
    queues.wait(DOWNLOAD, COMPUTE, queues.submitted(COMPUTE));
    let isDone = false;
    const downloaded = queues.download(queues.baseAddress, bytesOf(target)).then(() => {
      isDone = true;
    });
    await queues.close();
    await queues.close();
    await downloaded;
    expect(isDone).toBe(true);
    expect([...target]).toEqual([3, 3, 3, 3]);
    expect(() => fill(queues, 0, 1, 1)).toThrow('closed');
  });
});

describe.skipIf(!hasAddon)('the runtime refuses', () => {
  const addon = native()!;
  test('what is no handle, queue, kernel or whole number', () => {
    const queues = CommandQueues.create(4096, 1);
    expect(() => queues.launch(1e6, [])).toThrow(RangeError);
    expect(() => queues.wait(3 as 0, 1, 5)).toThrow();
    expect(() => queues.wait(0, 1, 0.5 + 2 ** 60)).toThrow(RangeError);
    expect(() => queues.discard(queues.baseAddress, 2 ** 40)).toThrow(RangeError);
    expect(() => queues.upload(queues.baseAddress, new Uint8Array(3), SOURCE.bfloat16)).toThrow(
      RangeError,
    );
    queues.closeNow();
    expect(() => addon.runtimeBase({} as never)).toThrow(TypeError);
    expect(() => addon.runtimeCreate(2 ** 52, new Float64Array(1), 1, () => undefined)).toThrow(
      RangeError,
    );
    expect(() => addon.runtimeCreate(4096, new Float64Array(1), 0, () => undefined)).toThrow(
      RangeError,
    );
    expect(() => addon.kernelId('noSuchKernel')).toThrow(RangeError);
  });
});

const url = (path: string): string =>
  JSON.stringify(new URL(`../../../tiers/device/native/${path}`, import.meta.url).href);
const QUEUED_WORK = `
  const { CommandQueues, COMPUTE } = await import(${url('command-queues.ts')});
  const { kernelIdOf } = await import(${url('kernel-id.ts')});
  const queues = CommandQueues.create(1 << 22, 2);
  for (let i = 0; i < 400; i++) {
    queues.launch(kernelIdOf('sleepFor'), [20]);
    queues.launch(kernelIdOf('fillFloat'), [queues.baseAddress, 1 << 20, i]);
    queues.upload(queues.baseAddress, new Uint8Array(1 << 20), 0);
  }`;

/** Runs a module in a fresh process; rejects when it does not end with status 0. */
async function runModule(code: string): Promise<string> {
  const args = ['--import', 'tsx', '--input-type=module', '-e', code];
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 60_000 });
  return stdout;
}

describe.skipIf(!hasAddon)('a process with work queued', () => {
  test('ends at once by process.exit, and cleanly', async () => {
    const before = performance.now();
    await runModule(`${QUEUED_WORK}; console.log('queued'); process.exit(0);`);
    // All that was queued would take more than 8 seconds.
    expect(performance.now() - before).toBeLessThan(8000);
  });

  test('ends when nothing waits for the queues', async () => {
    const stdout = await runModule(`
      const { CommandQueues } = await import(${url('command-queues.ts')});
      const { kernelIdOf } = await import(${url('kernel-id.ts')});
      const queues = CommandQueues.create(1 << 22, 2);
      for (let i = 0; i < 400; i++) queues.launch(kernelIdOf('sleepFor'), [100]);
      console.log('end');`);
    expect(stdout).toBe('end\n');
  });

  test('stays alive for a promise', async () => {
    const stdout = await runModule(`
      const { CommandQueues, COMPUTE } = await import(${url('command-queues.ts')});
      const { kernelIdOf } = await import(${url('kernel-id.ts')});
      const queues = CommandQueues.create(1 << 22, 1);
      queues.launch(kernelIdOf('sleepFor'), [200]);
      queues.done(COMPUTE, 1).then(() => console.log('done'));`);
    expect(stdout).toBe('done\n');
  });

  test('outlives a worker that is terminated in the middle of it', async () => {
    // Plain JavaScript over the addon, since a worker does not inherit the test's loader.
    const code = `
      const addon = require(${JSON.stringify(nativePath())});
      const args = new Float64Array(8);
      const handle = addon.runtimeCreate(1 << 22, args, 2, () => undefined);
      const source = (globalThis.source = new Uint8Array(1 << 20));
      args[0] = 20;
      for (let i = 0; i < 400; i++) {
        addon.runtimeLaunch(handle, addon.kernelId('sleepFor'), 1);
        addon.runtimeUpload(handle, addon.runtimeBase(handle), source, 0);
      }
      addon.runtimeWatch(handle, 0, 400);
      addon.runtimeKeepAlive(handle, true);
      require('node:worker_threads').parentPort.postMessage('queued');`;
    const worker = new Worker(code, { eval: true, execArgv: [] });
    await new Promise((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
    });
    await sleep(10);
    expect(await worker.terminate()).toBe(1);
  });
});

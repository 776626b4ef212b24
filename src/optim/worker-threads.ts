/**
 * @file How the optimizer's threads are started: piscina's options, the worker module beside the
 * running one, and tasks that reach each thread once.
 */
import { createRequire } from 'node:module';
import { extname } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { Piscina } from 'piscina';

import type { WorkerSetup } from './worker-protocol.js';

/** The worker module with the extension of this one: `.js` when built, `.ts` under tsx, vitest. */
export function workerFileOfThisBuild(): string {
  const here = fileURLToPath(import.meta.url);
  return fileURLToPath(new URL(`./adamw-worker${extname(here)}`, import.meta.url));
}

/** Starts exactly `workers` threads that run the exports of `workerFile`. */
export function startThreads(workers: number, setup: WorkerSetup, workerFile: string): Piscina {
  const piscina = new Piscina({
    filename: workerFile,
    name: 'update',
    minThreads: workers,
    maxThreads: workers,
    idleTimeout: Infinity,
    concurrentTasksPerWorker: 1,
    // Never used: the pool hands out as many jobs as there are threads.
    maxQueue: workers,
    recordTiming: false,
    // A thread that waits in Atomics.wait between tasks blocks its event loop, and loses the file
    // handles that its module loader was about to close. A message costs microseconds more.
    atomics: 'disabled',
    workerData: setup,
    execArgv: execArgvOf(workerFile),
  });
  // A thread that dies fails its task's promise; without a listener the event would end the
  // process.
  piscina.on('error', () => undefined);
  return piscina;
}

/** Runs export `name` once on each thread, which must all be idle. */
export function onEachWorker(
  piscina: Piscina,
  workers: number,
  name: 'start' | 'stop',
): Promise<unknown>[] {
  // Posted in one go: piscina gives each to a thread that has no task yet.
  return Array.from({ length: workers }, () => piscina.run(null, { name }) as Promise<unknown>);
}

/** Node's flags for a thread that runs `workerFile`: TypeScript needs a loader. */
export function execArgvOf(workerFile: string): string[] {
  return workerFile.endsWith('.ts') ? ['--import', tsxLoader()] : [];
}

/** Resolved from here, since `--import tsx` would be resolved from the working directory. */
function tsxLoader(): string {
  return pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
}

/**
 * @file Ends the process when one case takes too long: nothing in the same thread can stop a loop.
 */
import { Worker } from 'node:worker_threads';

/** Longest case. Cases take milliseconds; a machine that others use may pause for seconds. */
const LIMIT_MS = 30_000;

const PROGRAM = `
const { workerData, parentPort } = require('node:worker_threads');
const beats = new Int32Array(workerData.beats);
let last = -1;
setInterval(() => {
  const now = Atomics.load(beats, 0);
  if (now === last) {
    require('node:fs').writeSync(2, 'fuzz case ' + now + ' of ' + workerData.name + ' hangs\\n');
    process.kill(process.pid, 'SIGKILL');
  }
  last = now;
}, workerData.limitMs);
parentPort.on('message', () => process.exit());
`;

/** Watches until `stop`; `beat` says that a case has begun. */
export class Watchdog {
  readonly #beats = new Int32Array(new SharedArrayBuffer(4));
  readonly #worker: Worker;

  constructor(name: string) {
    const workerData = { beats: this.#beats.buffer, name, limitMs: LIMIT_MS };
    this.#worker = new Worker(PROGRAM, { eval: true, workerData });
  }

  beat(): void {
    Atomics.add(this.#beats, 0, 1);
  }

  async stop(): Promise<void> {
    this.#worker.postMessage('stop');
    await this.#worker.terminate();
  }
}

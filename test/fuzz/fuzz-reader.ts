/**
 * @file Runs a reader over mutations: a typed error or a correct load, no hang, bounded memory.
 *
 * SPILLWAY_FUZZ_RUNS is the number of cases of all five readers together, 5,000 unless set
 * (`npm run test:fuzz`: 100,000); each test takes its share. fast-check prints seed and path of a
 * case that fails.
 */
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import fc from 'fast-check';
import { expect } from 'vitest';

import { formatError, isCoded } from '../../core/errors.js';
import { Watchdog } from './watchdog.js';

const TOTAL_RUNS = Number(process.env['SPILLWAY_FUZZ_RUNS'] ?? 5000);

/** Cases between two looks at the memory. */
const BATCH = 500;

/** What a case may take in buffers beyond 4 times its file: a stream's buffer, a long word's arrays. */
const CASE_SLACK_BYTES = 2 ** 20;

/** What a batch may leave beyond 4 times its files: compiled code, caches of fixed size. */
const BATCH_SLACK_BYTES = 4 * 2 ** 20;

/** What a user sees of an error. */
const ONE_LINE = /^[A-Z_]+: [^\n]{1,4000}$/u;

/** What came out of a test's cases. */
export interface FuzzCounts {
  loaded: number;
  refused: number;
}

/** Runs `share` of all cases (0 to 1): `read` gets a mutated file and checks what it loads. */
export async function fuzzReader(options: {
  readonly name: string;
  readonly share: number;
  readonly files: fc.Arbitrary<Buffer>;
  /** Reads and checks. An error with a code of `codes` is a refusal; any other fails the test. */
  readonly read: (file: Buffer) => Promise<void> | void;
  readonly codes: readonly string[];
}): Promise<FuzzCounts> {
  const counts: FuzzCounts = { loaded: 0, refused: 0 };
  const watchdog = new Watchdog(options.name);
  const memory = new MemoryCheck();
  const began = performance.now();
  const numRuns = Math.max(1, Math.round(TOTAL_RUNS * options.share));
  try {
    await fc.assert(
      fc.asyncProperty(options.files.map(shownAsText), async (file) => {
        watchdog.beat();
        memory.begin();
        try {
          await options.read(file);
          counts.loaded += 1;
        } catch (error) {
          if (!isCoded(error)) throw error;
          expect(options.codes).toContain(error.code);
          expect(formatError(error)).toMatch(ONE_LINE);
          counts.refused += 1;
        }
        await memory.end(file.length);
      }),
      { numRuns, endOnFailure: false },
    );
  } finally {
    await watchdog.stop();
  }
  await memory.check();
  if (process.env['SPILLWAY_FUZZ_RUNS'] !== undefined) {
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    console.info(JSON.stringify({ name: options.name, cases: numRuns, seconds, ...counts }));
  }
  return counts;
}

/** Characters of a counterexample that are printed; seed and path bring back the rest. */
const LONGEST_SHOWN = 1500;

/** Compares what the process takes with what it was given: buffers per case, all per batch. */
class MemoryCheck {
  readonly #collect: () => void;
  #cases = 0;
  #givenBytes = 0;
  #heldBytes: number;
  #buffersBefore = 0;

  constructor() {
    setFlagsFromString('--expose-gc');
    this.#collect = runInNewContext('gc') as () => void;
    this.#collect();
    this.#heldBytes = held();
  }

  begin(): void {
    this.#buffersBefore = process.memoryUsage().arrayBuffers;
  }

  async end(fileBytes: number): Promise<void> {
    // What a claimed size has made a reader allocate is not collected yet.
    const taken = process.memoryUsage().arrayBuffers - this.#buffersBefore;
    expect(taken).toBeLessThan(4 * fileBytes + CASE_SLACK_BYTES);
    this.#givenBytes += fileBytes;
    this.#cases += 1;
    if (this.#cases % BATCH === 0) await this.check();
  }

  async check(): Promise<void> {
    // Closed streams let go of their buffers a turn later.
    this.#collect();
    await turn();
    this.#collect();
    const now = held();
    expect(now - this.#heldBytes).toBeLessThan(4 * this.#givenBytes + BATCH_SLACK_BYTES);
    this.#heldBytes = now;
    this.#givenBytes = 0;
  }
}

function held(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** A counterexample is printed as text, one character per byte. */
function shownAsText(file: Buffer): Buffer {
  const text = (): string => JSON.stringify(file.toString('latin1')).slice(0, LONGEST_SHOWN);
  return Object.defineProperty(file, fc.toStringMethod, { value: text });
}

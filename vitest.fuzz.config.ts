import { defineConfig } from 'vitest/config';

/**
 * All of the fuzzing, 100,000 cases unless SPILLWAY_FUZZ_RUNS says otherwise, and random runs
 * against their plans for a minute each, unless SPILLWAY_PLACEMENT_SECONDS says otherwise:
 * `npm run test:fuzz`.
 */
export default defineConfig({
  test: {
    include: [
      'test/fuzz/**/*.test.ts',
      'test/engine/device-bound.property.test.ts',
      'test/engine/random-inference.property.test.ts',
      'test/engine/random-placement.property.test.ts',
      'test/train/planned-run.property.test.ts',
    ],
    env: {
      SPILLWAY_FUZZ_RUNS: process.env['SPILLWAY_FUZZ_RUNS'] ?? '100000',
      SPILLWAY_PLACEMENT_SECONDS: process.env['SPILLWAY_PLACEMENT_SECONDS'] ?? '60',
    },
    testTimeout: 900_000,
    pool: 'forks',
    maxWorkers: 2,
  },
});

import { defineConfig } from 'vitest/config';

/** All of the fuzzing, 100,000 cases unless SPILLWAY_FUZZ_RUNS says otherwise: `npm run test:fuzz`. */
export default defineConfig({
  test: {
    include: ['test/fuzz/**/*.test.ts'],
    env: { SPILLWAY_FUZZ_RUNS: process.env['SPILLWAY_FUZZ_RUNS'] ?? '100000' },
    testTimeout: 900_000,
    pool: 'forks',
    maxWorkers: 2,
  },
});

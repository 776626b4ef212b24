import { defineConfig } from 'vitest/config';

/** Tests that take minutes: `npm run test:big`. */
export default defineConfig({
  test: {
    include: ['test/big/**/*.test.ts'],
    testTimeout: 900_000,
    pool: 'forks',
    maxWorkers: 1,
  },
});

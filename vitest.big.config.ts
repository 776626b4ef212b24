import { defineConfig } from 'vitest/config';
import { cacheHome } from './test/cache-home.js';

/** Tests that take minutes: `npm run test:big`. */
export default defineConfig({
  test: {
    include: ['test/big/**/*.test.ts'],
    testTimeout: 900_000,
    env: { XDG_CACHE_HOME: cacheHome() },
    pool: 'forks',
    maxWorkers: 1,
  },
});

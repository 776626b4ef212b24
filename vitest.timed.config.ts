import { defineConfig } from 'vitest/config';
import { cacheHome } from './test/cache-home.js';

/** Tests of time, for a machine that does nothing else: `npm run test:timed`. */
export default defineConfig({
  test: {
    include: ['test/timed/**/*.test.ts'],
    testTimeout: 120_000,
    env: { XDG_CACHE_HOME: cacheHome() },
    pool: 'forks',
    maxWorkers: 1,
  },
});

import { defineConfig } from 'vitest/config';
import { cacheHome } from './test/cache-home.js';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/big/**', 'test/timed/**'],
    testTimeout: 120_000,
    hookTimeout: 120_000,
    env: { XDG_CACHE_HOME: cacheHome() },
    pool: 'forks',
    maxWorkers: 2,
  },
});

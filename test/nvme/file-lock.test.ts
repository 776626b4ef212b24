// Goal: a data file has one holder, across processes, for as long as its descriptor is open.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

import { createIoBackend } from '../../tiers/nvme/create-io-backend.js';
import { failure, temporaryFolder } from './support.js';

const program = fileURLToPath(new URL('./lock-holder.ts', import.meta.url));

describe('the lock of a data file', () => {
  for (const portable of [false, true]) {
    it(`is held by another process until that is killed (${portable ? 'lock file' : 'flock'})`, async () => {
      const path = join(temporaryFolder(), 'data.bin');
      const env = { ...process.env, SPILLWAY_NATIVE: portable ? 'off' : 'on' };
      const child = spawn(process.execPath, ['--import', 'tsx', program, path], {
        env,
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      await once(child.stdout, 'data');
      const contender = spawn(process.execPath, ['--import', 'tsx', program, path], {
        env,
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      const [status] = (await once(contender, 'exit')) as [number];
      expect(status).toBe(3);
      const { backend } = createIoBackend();
      if (!portable) expect((await failure(() => backend.open(path))).code).toBe('STORE_LOCKED');
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
      const heir = spawn(process.execPath, ['--import', 'tsx', program, path], {
        env,
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      await once(heir.stdout, 'data');
      const heirExited = once(heir, 'exit');
      heir.kill('SIGKILL');
      await heirExited;
      await backend.dispose();
    });
  }
});

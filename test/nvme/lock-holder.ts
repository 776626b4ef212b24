/** @file Program of file-lock.test.ts: opens a data file and holds it; exits 3 when it is locked. */
import { hasCode } from '../../core/errors.js';
import { createIoBackend } from '../../tiers/nvme/create-io-backend.js';

const { backend } = createIoBackend();
try {
  await backend.open(process.argv[2]!);
  process.stdout.write('held\n');
  setInterval(() => undefined, 1000);
} catch (error) {
  process.exitCode = hasCode(error, 'STORE_LOCKED') ? 3 : 1;
}

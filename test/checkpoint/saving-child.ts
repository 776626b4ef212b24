/**
 * @file Program of kill.test.ts: saves, replaces and removes checkpoints until it is killed.
 *
 * `node saving-child.mjs <folder> <first step>` prints `begun` when the first save is under way,
 * then `saved <step>` and `final <version>` when these are done.
 */
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';

import { listCheckpoints } from '../../src/checkpoint/list-checkpoints.js';
import { removeCheckpoint } from '../../src/checkpoint/remove-checkpoint.js';
import { saveModelFolder } from '../../src/checkpoint/save-model.js';
import { versionedSave } from './versioned-save.js';

/** Checkpoints that are kept. */
const TOTAL_LIMIT = 2;

const folder = process.argv[2]!;
const report = (line: string): void => void process.stdout.write(`${line}\n`);

report('begun');
for (let step = Number(process.argv[3]); ; step += 1) {
  const shape = { sharded: step % 2 === 0, optimizer: step % 3 > 0 };
  const checkpoint = join(folder, `checkpoint-${step}`);
  for (let time = 0; time < 2; time += 1) {
    await saveModelFolder(versionedSave(checkpoint, 'replace', step, shape, turn));
    report(`saved ${step}`);
  }
  const found = await listCheckpoints(folder);
  for (const old of found.slice(0, -TOTAL_LIMIT)) await removeCheckpoint(old.folder);
  await saveModelFolder(versionedSave(folder, 'into', step, shape, turn));
  report(`final ${step}`);
}

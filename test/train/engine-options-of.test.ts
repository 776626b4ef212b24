// Goal: the throttles of a configuration reach the engine, link by link, and only those given.
import { expect, it } from 'vitest';
import { engineOptionsOf } from '../../src/train/engine-options-of.js';
import { load, REQUIRED } from '../config/config-folder.js';

it('throttles the links that the configuration names', async () => {
  const flags = ['--throttle.upload', '2GB', '--throttle.nvme_write', '500MB'];
  const config = await load([...REQUIRED, ...flags]);
  expect(engineOptionsOf(config).execution.throttles).toEqual({ upload: 2e9, nvme_write: 5e8 });
});

it('throttles each link by its own key', async () => {
  const config = await load([
    ...REQUIRED,
    ...['--throttle.upload', '1', '--throttle.download', '2'],
    ...['--throttle.nvme_read', '3', '--throttle.nvme_write', '4'],
  ]);
  expect(engineOptionsOf(config).execution.throttles).toEqual({
    upload: 1,
    download: 2,
    nvme_read: 3,
    nvme_write: 4,
  });
});

it('throttles nothing by default', async () => {
  expect(engineOptionsOf(await load(REQUIRED)).execution.throttles).toEqual({});
});

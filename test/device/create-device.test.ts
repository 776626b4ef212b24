// Goal: devices are made by name, and one that is not there is refused with the names that are.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { availableDevices, createDevice } from '../../tiers/device/create-device.js';
import { native } from '../../tiers/native/binding.js';

test('every available device is made with its budget', async () => {
  expect(availableDevices()).toEqual(native() === undefined ? ['cpu'] : ['native', 'cpu']);
  for (const name of availableDevices()) {
    const device = await createDevice(name, { budgetBytes: 12_345 });
    expect(device.name).toBe(name);
    expect(device.ledger.budgetBytes).toBe(12_345);
    await device.dispose();
  }
});

test('auto is the best of them', async () => {
  const device = await createDevice('auto', { budgetBytes: 12_345 });
  expect(device.name).toBe(availableDevices()[0]);
  await device.dispose();
});

test.each(['webgpu', 'tensorflow', 'cuda'])(
  'refuses %s and names what is available',
  async (name) => {
    await expect(createDevice(name, { budgetBytes: 1 })).rejects.toEqual(
      expect.objectContaining({
        code: 'DEVICE_UNAVAILABLE',
        message: expect.stringContaining(name) as unknown,
        facts: { available: availableDevices() },
      }),
    );
  },
);

test('without the addon native is refused, and auto is cpu', async () => {
  const url = new URL('../../tiers/device/create-device.ts', import.meta.url).href;
  const code = `
    const { createDevice } = await import(${JSON.stringify(url)});
    const auto = await createDevice('auto', { budgetBytes: 1000 });
    const refusal = await createDevice('native', { budgetBytes: 1000 }).catch((error) => error);
    console.log(JSON.stringify({ auto: auto.name, code: refusal.code, facts: refusal.facts }));`;
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--import', 'tsx', '--input-type=module', '-e', code],
    { env: { ...process.env, SPILLWAY_NATIVE: 'off' } },
  );
  expect(JSON.parse(stdout)).toEqual({
    auto: 'cpu',
    code: 'DEVICE_UNAVAILABLE',
    facts: { available: ['cpu'] },
  });
});

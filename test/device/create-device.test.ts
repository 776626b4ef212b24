// Goal: devices are made by name, and one that is not there is refused with the names that are.
import { expect, test } from 'vitest';
import { createDevice } from '../../tiers/device/create-device.js';

test('makes the cpu device with its budget', async () => {
  const device = await createDevice('cpu', { budgetBytes: 12_345 });
  expect(device.name).toBe('cpu');
  expect(device.ledger.budgetBytes).toBe(12_345);
  await device.dispose();
});

test.each(['native', 'webgpu', 'tensorflow', 'meta', 'cuda'])(
  'refuses %s and names what is available',
  async (name) => {
    await expect(createDevice(name, { budgetBytes: 1 })).rejects.toEqual(
      expect.objectContaining({
        code: 'DEVICE_UNAVAILABLE',
        message: expect.stringContaining(name) as unknown,
        facts: { available: ['cpu'] },
      }),
    );
  },
);

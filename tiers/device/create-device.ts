/**
 * @file Makes a device by the name that configurations use.
 */
import { SpillwayError } from '../../core/errors.js';
import { CpuDevice, type DeviceOptions } from './cpu-device.js';
import type { Device } from './device.js';

/** Devices that this version makes. */
export const AVAILABLE_DEVICES: readonly string[] = ['cpu'];

/** Devices that the design foresees and this version does not make. */
const PLANNED_DEVICES: readonly string[] = ['native', 'webgpu', 'tensorflow', 'meta'];

/**
 * The device `name` with a budget in bytes. The caller disposes it.
 *
 * @throws DEVICE_UNAVAILABLE with the names that are available
 */
export async function createDevice(name: string, options: DeviceOptions): Promise<Device> {
  if (name === 'cpu') return CpuDevice.create(options);
  const what = PLANNED_DEVICES.includes(name)
    ? `the ${name} device is not part of this version`
    : `there is no device called "${name}"`;
  throw new SpillwayError('DEVICE_UNAVAILABLE', `${what}; use one of the available`, {
    available: AVAILABLE_DEVICES,
  });
}

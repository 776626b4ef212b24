/**
 * @file Makes a device by the name that configurations use.
 */
import { SpillwayError } from '../../core/errors.js';
import { native, nativeStatus } from '../native/binding.js';
import { CpuDevice, type DeviceOptions } from './cpu-device.js';
import type { Device } from './device.js';
import { NativeDevice } from './native/native-device.js';

/** Devices that this version makes, best first; `native` needs the addon. */
const DEVICES: readonly string[] = ['native', 'cpu'];

/** Devices that the design foresees and this version does not make. */
const PLANNED_DEVICES: readonly string[] = ['webgpu', 'tensorflow'];

/**
 * Devices that this process can make, best first; the first is what `auto` stands for.
 *
 * @throws as `native()` of the binding does
 */
export function availableDevices(): readonly string[] {
  return DEVICES.filter((name) => name !== 'native' || native() !== undefined);
}

/**
 * The device `name` with a budget in bytes; `auto` is the best that is available. The caller
 * disposes it.
 *
 * @throws DEVICE_UNAVAILABLE with the names that are available; CONFIG_INVALID when SPILLWAY_THREADS
 *   is no number of threads
 */
export async function createDevice(name: string, options: DeviceOptions): Promise<Device> {
  return chosenDevice(name) === 'cpu' ? CpuDevice.create(options) : NativeDevice.create(options);
}

/**
 * A device to plan with that allocates as `name` does: one without memory or threads where there is
 * one, else the device itself. The caller disposes it.
 *
 * @throws DEVICE_UNAVAILABLE as `createDevice` does
 */
export async function createPlanningDevice(name: string, options: DeviceOptions): Promise<Device> {
  return chosenDevice(name) === 'cpu'
    ? CpuDevice.create(options)
    : NativeDevice.createMeta(options);
}

/**
 * The device that `name` stands for.
 *
 * @throws DEVICE_UNAVAILABLE with the names that are available
 */
export function chosenDevice(name: string): 'native' | 'cpu' {
  const available = availableDevices();
  const chosen = name === 'auto' ? available[0] : name;
  if (chosen === 'cpu') return 'cpu';
  if (chosen === 'native' && available.includes('native')) return 'native';
  throw new SpillwayError('DEVICE_UNAVAILABLE', `${whyNot(name)}; use one of the available`, {
    available,
  });
}

/**
 * A device that computes shapes and allocations as `device` would, or undefined where only a run
 * tells (tfjs's cpu kernels allocate as they please).
 */
export function createMetaDevice(device: Device): Device | undefined {
  if (!(device instanceof NativeDevice)) return undefined;
  return NativeDevice.createMeta({ budgetBytes: device.ledger.budgetBytes });
}

function whyNot(name: string): string {
  if (name === 'native') {
    const status = nativeStatus();
    return `the native device needs the C++ addon (${'reason' in status ? status.reason : status.kind})`;
  }
  if (PLANNED_DEVICES.includes(name)) return `the ${name} device is not part of this version`;
  return `there is no device called "${name}"`;
}

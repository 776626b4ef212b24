// Goal: the native device keeps every device's promises.
import { describe } from 'vitest';
import { NativeDevice } from '../../tiers/device/native/native-device.js';
import { native } from '../../tiers/native/binding.js';
import { budgetContract } from './budget-contract.js';
import { deviceContract, type DeviceCase } from './device-contract.js';

const kind: DeviceCase = {
  name: 'native',
  granuleBytes: 64,
  sliceIsView: false,
  create: (options) => NativeDevice.create(options),
};

describe.skipIf(native() === undefined)('native', () => {
  deviceContract(kind);
  budgetContract(kind);
});

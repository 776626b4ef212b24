// Goal: the cpu device keeps every device's promises.
import { CpuDevice } from '../../tiers/device/cpu-device.js';
import { deviceContract } from './device-contract.js';

deviceContract({
  name: 'cpu',
  granuleBytes: 1,
  sliceIsView: true,
  create: (options) => CpuDevice.create(options),
});

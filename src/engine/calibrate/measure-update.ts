/**
 * @file Measures AdamW on the optimizer's workers, all at once, states in memory, beside kernels.
 */
import type { Device } from '../../../tiers/device/device.js';
import type { UpdateCosts } from '../../plan/costs.js';
import { besideCompute } from './beside-compute.js';
import { meanSeconds, type Deadline } from './deadline.js';
import type { UpdateArea } from './update-area.js';

/** Elements of a shard whose update is over at once: what is left is handing it over. */
const SMALL_LENGTH = 4096;

/**
 * Elements per second of all workers together, and seconds per shard.
 *
 * @throws DEVICE_OUT_OF_MEMORY, WORKER_FAILED
 */
export function measureUpdate(
  device: Device,
  area: UpdateArea,
  until: Deadline,
): Promise<UpdateCosts> {
  const secondsOf = (elements: number, deadline: Deadline): Promise<number> =>
    meanSeconds(deadline, async () => {
      const start = performance.now();
      await area.update(elements);
      return (performance.now() - start) / 1000;
    });
  return besideCompute(device, async () => {
    const large = await secondsOf(area.length, until.part(2 / 3));
    const small = await secondsOf(area.workers * SMALL_LENGTH, until);
    const handedOver = Math.min(small, large / 2);
    return {
      updateElementsPerSecond: area.length / (large - handedOver),
      updateSecondsPerShard: handedOver / area.workers,
    };
  });
}

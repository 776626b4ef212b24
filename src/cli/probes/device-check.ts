/**
 * @file Which compute devices a run can ask for.
 */
import { availableDevices } from '../../../tiers/device/create-device.js';
import { CONFIG_KEYS } from '../../config/schema.js';
import type { Check } from './check.js';

export function checkDevices(): Check {
  const available = availableDevices();
  const known = CONFIG_KEYS.device.type.split(' | ').filter((name) => name !== 'auto');
  const missing = known.filter((name) => !available.includes(name));
  const onlyCpu = available.every((name) => name === 'cpu');
  return {
    name: 'devices',
    ok: !onlyCpu,
    summary: `${available.join(', ')}; not here: ${missing.join(', ') || 'none'}`,
    cost: onlyCpu ? "products run in tfjs's plain JavaScript, at about 1 GFLOP/s" : null,
    facts: { available: [...available], unavailable: missing },
  };
}

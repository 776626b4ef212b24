/**
 * @file Which compute devices a run can ask for.
 */
import { AVAILABLE_DEVICES } from '../../../tiers/device/create-device.js';
import { CONFIG_KEYS } from '../../config/schema.js';
import type { Check } from './check.js';

export function checkDevices(): Check {
  const known = CONFIG_KEYS.device.type.split(' | ');
  const missing = known.filter((name) => !AVAILABLE_DEVICES.includes(name));
  const onlyCpu = AVAILABLE_DEVICES.every((name) => name === 'cpu');
  return {
    name: 'devices',
    ok: !onlyCpu,
    summary: `${AVAILABLE_DEVICES.join(', ')}; not here: ${missing.join(', ') || 'none'}`,
    cost: onlyCpu ? "products run in tfjs's plain JavaScript, at about 1 GFLOP/s" : null,
    facts: { available: [...AVAILABLE_DEVICES], unavailable: missing },
  };
}

/**
 * @file DeepSpeed's `zero_optimization`: where parameters and optimizer states lie.
 *
 * Stage 0 offloads nothing. Stages 1 and 2 partition over devices, of which there is one here; what
 * is left of them is `offload_optimizer`. Stage 3 has both. A section that is missing leaves the
 * trainer's key, `auto` by default; so does a file without `zero_optimization`.
 */
import { alignDown } from '../../../core/bytes.js';
import type { DsMerge } from './ds-merge.js';
import { dsRefusal, type DsScan } from './scan-ds-config.js';

const ZERO = 'zero_optimization';
const SECTIONS = ['offload_param', 'offload_optimizer'] as const;

/** Shards are cut at multiples of this number of elements. */
const GRAIN = 4096;

/** Notes that people should see, beside the ignored keys. */
export interface OffloadNotes {
  readonly notes: readonly string[];
  /** Keys that mean nothing beside the others given. */
  readonly ignored: readonly string[];
}

/**
 * Maps stage, offload devices, paths and `sub_group_size`.
 *
 * @throws CONFIG_INVALID
 */
export function mapOffload(scan: DsScan, merge: DsMerge): OffloadNotes {
  mapDevices(scan, merge);
  const ignored = mapPaths(scan, merge);
  return { notes: mapSubGroupSize(scan, merge), ignored };
}

function mapDevices(scan: DsScan, merge: DsMerge): void {
  const stage = scan.values.get(`${ZERO}.stage`);
  if (stage !== undefined && ![0, 1, 2, 3].includes(stage as number)) {
    throw dsRefusal(`${ZERO}.stage`, stage, merge.path, 'stages are 0, 1, 2 and 3; use 3');
  }
  for (const section of SECTIONS) {
    const name = `${ZERO}.${section}.device`;
    const device = scan.values.get(name);
    if (device === undefined) {
      if (stage === 0) merge.set(`${section}.device`, 'none', `${ZERO}.stage`, { written: stage });
      continue;
    }
    const leastStage = section === 'offload_param' ? 3 : 1;
    if (device !== 'none' && ((stage as number | undefined) ?? 0) < leastStage) {
      const why = `${section} does nothing below stage ${leastStage}; set ${ZERO}.stage to 3`;
      throw dsRefusal(name, device, merge.path, why);
    }
    merge.set(`${section}.device`, device, name);
  }
}

/** DeepSpeed may have one path for each kind of state; here both kinds are spread over all paths. */
function mapPaths(scan: DsScan, merge: DsMerge): string[] {
  const paths = new Set<unknown>();
  const names: string[] = [];
  const ignored: string[] = [];
  for (const section of SECTIONS) {
    const name = `${ZERO}.${section}.nvme_path`;
    const path = scan.values.get(name);
    if (path === undefined) continue;
    const isAuto = scan.auto.has(`${ZERO}.${section}.device`);
    const device = isAuto
      ? merge.values[`${section}.device`]
      : scan.values.get(`${ZERO}.${section}.device`);
    if (device === 'nvme' || device === 'auto') {
      paths.add(path);
      names.push(name);
    } else ignored.push(name);
  }
  if (paths.size > 0) merge.set('nvme_path', [...paths], names.join(' and '));
  return ignored;
}

function mapSubGroupSize(scan: DsScan, merge: DsMerge): string[] {
  const name = `${ZERO}.sub_group_size`;
  const size = scan.values.get(name);
  if (size === undefined) return [];
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < GRAIN) {
    const why = `a shard has a whole number of elements, at least ${GRAIN}; give more`;
    throw dsRefusal(name, size, merge.path, why);
  }
  const cut = alignDown(size, GRAIN);
  merge.set('sub_group_size', cut, name, { written: size });
  if (cut === size) return [];
  return [`${name} ${size} is cut to ${cut} elements, a multiple of ${GRAIN}`];
}

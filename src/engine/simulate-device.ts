/**
 * @file What a step plan needs on the device, exactly: its compute operations are launched in
 * program order on the meta device, by the code that the executor runs.
 *
 * Allocation follows launches, and launches follow the plan, so the peaks are those of the real
 * device whatever the timing.
 */
import { alignUp } from '../../core/bytes.js';
import { IO_ALIGNMENT } from '../../core/types.js';
import type { Device, DeviceRegion } from '../../tiers/device/device.js';
import type { Block, BlockAux, MicroBatch, ParamName } from '../model/block.js';
import { homeOf, stateType, statesOf, type MemoryPlan } from '../plan/placement.js';
import {
  packParams,
  wholeParams,
  type PackedParams,
  type PackingInput,
} from '../plan/packed-params.js';
import type { ParameterLayout } from '../plan/parameter-layout.js';
import { type Compute, type Phase, type StepPlan } from '../plan/step-plan.js';
import { ActivationShapes } from './activation-shapes.js';
import { ComputeRunner } from './compute-runner.js';
import { OperationEffects } from './operation-effects.js';

/** Names of a block's whole parameters that train. */
export function trainableParams(block: Block, layout: ParameterLayout): ParamName[] {
  return wholeParams(block).filter((name) => layout.params.get(name)?.spec.trainable !== false);
}

/** Bytes of leases that hold states on the device for the whole run. */
export function residentBytes({ layout, homes, dtype }: PackingInput): number {
  let bytes = 0;
  for (const group of layout.groups) {
    for (const state of statesOf(group, dtype)) {
      if (homeOf(homes[group.index]!, state) !== 'device') continue;
      const elementBytes = stateType(state, dtype) === 'float32' ? 4 : 2;
      bytes += alignUp(group.length * elementBytes, IO_ALIGNMENT);
    }
  }
  return bytes;
}

/** What is simulated. */
export interface DeviceSimulation extends PackingInput {
  /** Bytes of other leases on the device: a sequence's cache. Default 0. */
  readonly cacheBytes?: number;
  readonly blocks: readonly Block[];
  readonly plan: Pick<MemoryPlan, 'region'>;
  readonly step: StepPlan;
  readonly batches: readonly MicroBatch[];
}

/**
 * Highest bytes on the device in each phase of a step, everything resident included.
 *
 * @param meta of the real device's capabilities, with room enough
 */
export async function simulateDevice(
  meta: Device,
  simulation: DeviceSimulation,
): Promise<Record<Phase, number>> {
  const { ledger } = meta;
  return withComputeRunner(meta, simulation, async ({ runner, packed }) => {
    const effects = new OperationEffects({ ...simulation, ledger, runner, packed });
    const peaks: Record<Phase, number> = { forward: 0, backward: 0, update: 0 };
    ledger.resetPeak();
    for (const operation of simulation.step.operations) {
      if (operation.lane !== 'compute') continue;
      const action = operation.action as Compute;
      const peak = await effects.run(operation, action);
      peaks[operation.phase] = Math.max(peaks[operation.phase], peak);
    }
    runner.clear();
    ledger.resetPeak();
    peaks.update = ledger.liveBytes;
    return peaks;
  });
}

/** What runs a plan's compute operations without an engine around it. */
export interface BareRunner {
  readonly runner: ComputeRunner;
  readonly packed: readonly PackedParams[];
  /** Where fetched bytes would be; undefined values until it is written to. */
  readonly region: DeviceRegion;
  /** Frees what is left of the step and begins another. */
  readonly restart: () => void;
}

/** Runs `body` with a step begun on `device`, whose states have arbitrary values; frees all of it. */
export async function withComputeRunner<T>(
  device: Device,
  simulation: DeviceSimulation,
  body: (bare: BareRunner) => Promise<T>,
): Promise<T> {
  const { blocks, layout, plan, batches } = simulation;
  const packed = blocks.map((block) => packParams(block, simulation));
  const { cacheBytes = 0 } = simulation;
  const resident = device.reserve(residentBytes(simulation) + cacheBytes, 'resident states');
  const region = device.reserve(plan.region.byteLength, 'region');
  const shapes = new ActivationShapes();
  const runner = new ComputeRunner({
    device,
    region,
    blocks,
    layout,
    packed,
    trainableOf: (block) => trainableParams(block, layout),
    alias: ({ spec: { shape } }, rows) =>
      resident.view(0, rows ? [rows.count, ...shape.slice(1)] : shape, 'float32'),
    inputShape: shapes.of,
    onActivation: shapes.note,
    countUpload: () => undefined,
  });
  const restart = (): void => {
    runner.clear();
    runner.begin(batches.map(auxOf));
  };
  try {
    restart();
    return await body({ runner, packed, region, restart });
  } finally {
    runner.clear();
    region.dispose();
    resident.dispose();
  }
}

function auxOf({ fields }: MicroBatch, microBatch: number): BlockAux {
  return { fields, tensors: {}, lossScale: 1, seed: 0, step: 0, microBatch, block: 0 };
}

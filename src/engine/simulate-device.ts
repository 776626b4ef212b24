/**
 * @file What a step plan needs on the device, exactly: its compute operations are launched in
 * program order on the meta device, by the code that the executor runs.
 *
 * Allocation follows launches, and launches follow the plan, so the peaks are those of the real
 * device whatever the timing.
 */
import { alignUp } from '../../core/bytes.js';
import { IO_ALIGNMENT } from '../../core/types.js';
import type { Device } from '../../tiers/device/device.js';
import type { Block, BlockAux, MicroBatch, ParamName } from '../model/block.js';
import { homeOf, stateType, statesOf, type MemoryPlan } from '../plan/placement.js';
import { packParams, wholeParams, type PackingInput } from '../plan/packed-params.js';
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
  readonly blocks: readonly Block[];
  readonly plan: MemoryPlan;
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
  const { blocks, layout, plan, step, batches } = simulation;
  const packed = blocks.map((block) => packParams(block, simulation));
  const resident = meta.reserve(residentBytes(simulation), 'resident states');
  const region = meta.reserve(plan.region.byteLength, 'region');
  const shapes = new ActivationShapes();
  const runner = new ComputeRunner({
    device: meta,
    region,
    blocks,
    layout,
    packed,
    trainableOf: (block) => trainableParams(block, layout),
    alias: ({ spec }) => resident.view(0, spec.shape, 'float32'),
    inputShape: shapes.of,
    onActivation: shapes.note,
    countUpload: () => undefined,
  });
  const { ledger } = meta;
  const effects = new OperationEffects({ ledger, runner, blocks, layout, packed, batches });
  const peaks: Record<Phase, number> = { forward: 0, backward: 0, update: 0 };
  try {
    meta.ledger.resetPeak();
    runner.begin(batches.map(auxOf));
    for (const operation of step.operations) {
      if (operation.lane !== 'compute') continue;
      const action = operation.action as Compute;
      const peak = await effects.run(operation, action);
      peaks[operation.phase] = Math.max(peaks[operation.phase], peak);
    }
    runner.clear();
    meta.ledger.resetPeak();
    peaks.update = meta.ledger.liveBytes;
  } finally {
    runner.clear();
    region.dispose();
    resident.dispose();
  }
  return peaks;
}

function auxOf({ fields }: MicroBatch, microBatch: number): BlockAux {
  return { fields, tensors: {}, lossScale: 1, seed: 0, step: 0, microBatch, block: 0 };
}

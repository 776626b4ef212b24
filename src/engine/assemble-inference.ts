/**
 * @file Builds what an inference engine works with: weights at their homes, a sequence's cache, and
 * nothing that training needs.
 */
import { SpillwayError } from '../../core/errors.js';
import type { ComputeDtype, Tier } from '../../core/types.js';
import { createDevice, createMetaDevice } from '../../tiers/device/create-device.js';
import type { Device } from '../../tiers/device/device.js';
import { HostPool } from '../../tiers/host/host-pool.js';
import { MIN_STAGING } from '../../tiers/host/staging-pool.js';
import { TierManager } from '../../tiers/tier-manager.js';
import type { Model } from '../model/block.js';
import { planInference, type InferencePlan } from '../plan/inference-plan.js';
import { layoutParameters, type ParameterLayout } from '../plan/parameter-layout.js';
import { assembleRunners, logitsBytes, type InferenceRunners } from './assemble-runners.js';
import { checkResourceOptions } from './check-options.js';
import { fieldBytes } from './field-bytes.js';
import type { InferenceOptions } from './inference-options.js';
import { probeForward, probeSequence } from './inference-probe.js';
import { initialiseStates } from './initialise-states.js';
import { ParameterStore } from './parameter-store.js';
import type { Release } from './release.js';
import { budgetsOf, createVolume, DEFAULTS, pathsOf } from './resources.js';
import { PART_TOKENS } from './sequence-runner.js';

/** What an inference engine works with, and owns. */
export interface AssembledInference extends InferenceRunners {
  readonly model: Model;
  readonly tiers: TierManager;
  readonly layout: ParameterLayout;
  readonly plan: InferencePlan;
  readonly store: ParameterStore;
  readonly budgets: Readonly<Record<Tier, number>>;
}

/**
 * Profiles the blocks, plans, reserves memory and files, loads the weights.
 *
 * @param owned receives how to free what has been built, oldest first, also when this throws
 */
export async function assembleInference(
  options: InferenceOptions,
  owned: Release[],
): Promise<AssembledInference> {
  checkInferenceOptions(options);
  const { model } = options;
  const dtype: ComputeDtype = options.dtype ?? 'float32';
  const budgets = budgetsOf(options);
  const subGroupSize = options.subGroupSize ?? DEFAULTS.subGroupSize;
  const layout = layoutParameters(model.blocks, subGroupSize, 'inference');
  const device = await createDevice(options.device ?? 'auto', { budgetBytes: budgets.device });
  owned.push(() => device.dispose());
  const meta = createMetaDevice(device);
  if (meta !== undefined) owned.push(() => meta.dispose());
  const plan = planFor(options, meta ?? device, layout, budgets);
  device.ledger.resetPeak();
  const host = HostPool.create({ budgetBytes: budgets.host });
  owned.push(() => host.dispose());
  const volume = await createVolume(options, plan.nvmeRequest, budgets.nvme);
  if (volume !== undefined) owned.push(() => volume.dispose({ remove: true }));
  const { stagingCount } = plan;
  const spillStagingCount = MIN_STAGING.write; // Weights are written while they are loaded.
  const tiers = new TierManager({ device, host, volume, stagingCount, spillStagingCount });
  owned.push(() => tiers.dispose());
  const store = new ParameterStore(tiers, layout, plan, dtype);
  owned.push(() => store.dispose());
  await initialiseStates(store, tiers, model, undefined);
  const built = { layout, plan, tiers, store, meta };
  const runners = assembleRunners(options, built, owned);
  return { model, tiers, layout, plan, store, budgets, ...runners };
}

function checkInferenceOptions(options: InferenceOptions): void {
  checkResourceOptions(options);
  const { exampleBatch, maxLength } = options;
  if (exampleBatch === undefined && maxLength === undefined) {
    throw new SpillwayError(
      'CONFIG_INVALID',
      'an inference engine needs exampleBatch to evaluate or maxLength to generate; give one',
    );
  }
  if (maxLength === undefined || (Number.isSafeInteger(maxLength) && maxLength >= 1)) return;
  throw new SpillwayError(
    'CONFIG_INVALID',
    `maxLength is ${maxLength}; give a whole number, at least 1`,
    { option: 'maxLength' },
  );
}

/** Plans where weights and cache live. */
function planFor(
  options: InferenceOptions,
  device: Device,
  layout: ParameterLayout,
  budgets: Readonly<Record<Tier, number>>,
): InferencePlan {
  const { model, exampleBatch, maxLength } = options;
  const { blocks } = model;
  const dtype = options.dtype ?? 'float32';
  const setting = { device, blocks, layout, dtype };
  return planInference({
    blocks,
    layout,
    evaluation: exampleBatch && {
      profiles: probeForward(setting, exampleBatch),
      fieldBytes: fieldBytes(blocks, exampleBatch),
    },
    sequence:
      maxLength === undefined
        ? undefined
        : {
            profiles: probeSequence(setting, { count: PART_TOKENS, limit: maxLength }),
            limit: maxLength,
            logitsBytes: logitsBytes(model, layout),
          },
    budgets,
    dtype,
    offloadParam: options.offloadParam ?? 'auto',
    hostAddressableDevice: device.capabilities.hostAddressable,
    bf16Operands: device.capabilities.bf16Operands,
    nvmePathCount: pathsOf(options).length,
  });
}

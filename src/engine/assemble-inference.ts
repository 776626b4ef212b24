/**
 * @file Builds what an inference engine works with: weights at their homes, a sequence's cache, and
 * nothing that training needs.
 */
import { SpillwayError, assert } from '../../core/errors.js';
import type { ComputeDtype, Tier } from '../../core/types.js';
import { createDevice } from '../../tiers/device/create-device.js';
import type { Device } from '../../tiers/device/device.js';
import { HostPool } from '../../tiers/host/host-pool.js';
import { MIN_STAGING } from '../../tiers/host/staging-pool.js';
import { TierManager } from '../../tiers/tier-manager.js';
import type { MicroBatch, Model } from '../model/block.js';
import { planInference, type InferencePlan } from '../plan/inference-plan.js';
import { layoutParameters, type ParameterLayout } from '../plan/parameter-layout.js';
import { checkResourceOptions } from './check-options.js';
import { ForwardRunner, type InferenceParts } from './forward-runner.js';
import type { InferenceOptions } from './inference-options.js';
import { probeForward, probeSequence } from './inference-probe.js';
import { initialiseStates } from './initialise-states.js';
import { KeyValueCache } from './key-value-cache.js';
import { ParameterLoader } from './parameter-loader.js';
import { ParameterStore } from './parameter-store.js';
import type { Release } from './release.js';
import { budgetsOf, createVolume, DEFAULTS, onProbeDevice, pathsOf } from './resources.js';
import { PART_TOKENS, SequenceRunner } from './sequence-runner.js';

/** What an inference engine works with, and owns. */
export interface AssembledInference {
  readonly model: Model;
  readonly tiers: TierManager;
  readonly layout: ParameterLayout;
  readonly plan: InferencePlan;
  readonly store: ParameterStore;
  /** With an example batch. */
  readonly forward: ForwardRunner | undefined;
  readonly exampleBatch: MicroBatch | undefined;
  /** With a `maxLength`. */
  readonly sequence: SequenceRunner | undefined;
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
  const { model, exampleBatch, maxLength } = options;
  const dtype: ComputeDtype = options.dtype ?? 'float32';
  const budgets = budgetsOf(options);
  const subGroupSize = options.subGroupSize ?? DEFAULTS.subGroupSize;
  const layout = layoutParameters(model.blocks, subGroupSize, 'inference');
  const device = await createDevice(options.device ?? 'auto', { budgetBytes: budgets.device });
  owned.push(() => device.dispose());
  const { plan, cacheWidths } = await onProbeDevice(device, (probed) =>
    planFor(options, probed, layout, budgets),
  );
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
  const { blocks } = model;
  const loader = new ParameterLoader(tiers, store);
  const parts: InferenceParts = { blocks, tiers, loader, seed: options.seed ?? DEFAULTS.seed };
  let sequence: SequenceRunner | undefined;
  if (maxLength !== undefined) {
    const cache = new KeyValueCache(tiers, plan.cacheTiers, cacheWidths, maxLength);
    owned.push(() => cache.dispose());
    const logits = host.lease(logitsBytes(options, layout), 'logits of one position');
    owned.push(() => logits.dispose());
    sequence = new SequenceRunner(parts, cache, logits);
  }
  await initialiseStates(store, tiers, model, undefined);
  return {
    model,
    tiers,
    layout,
    plan,
    store,
    forward: exampleBatch === undefined ? undefined : new ForwardRunner(parts),
    exampleBatch,
    sequence,
    budgets,
  };
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
): { plan: InferencePlan; cacheWidths: readonly (readonly number[])[] } {
  const { model, exampleBatch, maxLength } = options;
  const { blocks } = model;
  const dtype = options.dtype ?? 'float32';
  const setting = { device, blocks, layout, dtype };
  const sequence =
    maxLength === undefined
      ? undefined
      : probeSequence(setting, { count: PART_TOKENS, limit: maxLength });
  const evaluation = exampleBatch === undefined ? undefined : probeForward(setting, exampleBatch);
  const cacheWidths = blocks.map((_, index) => sequence?.[index]?.cacheWidths ?? []);
  const plan = planInference({
    blocks,
    layout,
    workloads: [sequence, evaluation].filter((profiles) => profiles !== undefined),
    cacheWidths,
    cacheLength: maxLength ?? 0,
    logitsBytes: maxLength === undefined ? 0 : logitsBytes(options, layout),
    budgets,
    dtype,
    offloadParam: options.offloadParam ?? 'auto',
    hostAddressableDevice: device.capabilities.hostAddressable,
    bf16Operands: device.capabilities.bf16Operands,
    nvmePathCount: pathsOf(options).length,
  });
  return { plan, cacheWidths };
}

function logitsBytes({ model }: InferenceOptions, layout: ParameterLayout): number {
  const head = model.blocks.at(-1);
  assert(head?.kind === 'tiled', 'the probe has refused other heads');
  return (layout.params.get(head.tiledParam)?.spec.shape[0] ?? 0) * 4;
}

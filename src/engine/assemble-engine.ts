/**
 * @file Builds what an engine works with, in the order in which things depend on one another.
 */
import { dirname } from 'node:path';
import type { ComputeDtype, Tier } from '../../core/types.js';
import { createDevice } from '../../tiers/device/create-device.js';
import { HostPool } from '../../tiers/host/host-pool.js';
import { ShardDirectory, directoryRecords } from '../../tiers/nvme/directory.js';
import { TierManager } from '../../tiers/tier-manager.js';
import type { MicroBatch, Model } from '../model/block.js';
import { modelFingerprint } from '../model/model-fingerprint.js';
import { ADAMW_DEFAULTS, type AdamwOptions } from '../optim/adamw-options.js';
import { OptimizerPool } from '../optim/optimizer-pool.js';
import type { MemoryPlan } from '../plan/placement.js';
import { layoutParameters, type ParameterLayout } from '../plan/parameter-layout.js';
import { ActivationStore } from './activation-store.js';
import { checkOptions } from './check-options.js';
import type { EngineOptions } from './engine-options.js';
import { GradientWriter } from './gradient-writer.js';
import { initialiseStates } from './initialise-states.js';
import { ParameterLoader } from './parameter-loader.js';
import { ParameterStore } from './parameter-store.js';
import { planOn } from './plan-training.js';
import type { Release } from './release.js';
import { budgetsOf, createVolume, DEFAULTS, onProbeDevice } from './resources.js';
import { RowGradients } from './row-gradients.js';
import { StepRunner } from './step-runner.js';
import { UpdateSweep } from './update-sweep.js';

/** Defaults that the configuration shares (docs/CONFIG.md). */
const TRAINING_DEFAULTS = { learningRate: 2e-5, maxGradNorm: 1 };

/** What an engine works with, and owns. */
export interface EngineParts {
  readonly model: Model;
  readonly tiers: TierManager;
  readonly layout: ParameterLayout;
  readonly plan: MemoryPlan;
  readonly store: ParameterStore;
  readonly writer: GradientWriter;
  readonly runner: StepRunner;
  readonly sweep: UpdateSweep;
  readonly adamw: AdamwOptions;
  readonly learningRate: number;
  readonly maxGradNorm: number;
  readonly microBatchCount: number;
  /** The largest shapes that memory is planned for. */
  readonly exampleBatch: MicroBatch;
  readonly budgets: Readonly<Record<Tier, number>>;
  /** Frees everything, newest first. */
  readonly owned: Release[];
}

/**
 * Profiles the blocks, plans, reserves memory and files, loads the parameters.
 *
 * @param owned receives how to free what has been built, oldest first, also when this throws
 */
export async function assembleEngine(
  options: EngineOptions,
  owned: Release[],
): Promise<EngineParts> {
  checkOptions(options);
  const { model } = options;
  const dtype: ComputeDtype = options.dtype ?? 'float32';
  const budgets = budgetsOf(options);
  const layout = layoutParameters(model.blocks, options.subGroupSize ?? DEFAULTS.subGroupSize);
  const device = await createDevice(options.device ?? 'auto', { budgetBytes: budgets.device });
  owned.push(() => device.dispose());
  const planned = await onProbeDevice(device, (probed) => planOn(probed, options, layout, budgets));
  const { plan, slotBytes, staging, workers, rowGathers } = planned;
  const host = HostPool.create({ budgetBytes: budgets.host });
  owned.push(() => host.dispose());
  const volume = await createVolume(options, plan.nvmeRequest, budgets.nvme);
  if (volume !== undefined) owned.push(() => volume.dispose({ remove: true }));
  const tiers = new TierManager({ device, host, volume, stagingCount: plan.stagingCount });
  owned.push(() => tiers.staging.dispose());
  const store = new ParameterStore(tiers, layout, plan, dtype);
  owned.push(() => store.dispose());
  const activations = new ActivationStore(tiers, plan, slotBytes);
  owned.push(() => activations.dispose());
  const rows = new Map<string, RowGradients>();
  owned.push(() => [...rows.values()].forEach((one) => one.dispose()));
  const microBatchCount = options.gradientAccumulationSteps ?? 1;
  for (const gather of rowGathers) {
    const size = { rowsPerMicroBatch: gather.rows, microBatchCount, columns: gather.columns };
    rows.set(gather.name, new RowGradients(host, { ...size, label: gather.name }));
  }
  const writer = new GradientWriter(tiers, store, model.blocks, plan);
  owned.push(() => writer.dispose());
  const pool = await OptimizerPool.create({
    workers,
    arena: host,
    staging,
    io: options.io?.backend.kind === 'simulated' ? 'blocking' : 'auto',
    ...(options.io?.workerFaults === undefined ? {} : { faults: options.io.workerFaults }),
    ...(volume === undefined ? {} : { filePaths: volume.filePaths }),
  });
  owned.push(() => pool.close());
  await initialiseStates(store, tiers, model, options.initialState);
  if (volume !== undefined) {
    await volume.sealHeaders(0, 0);
    const directory = ShardDirectory.open(dirname(volume.filePaths[0] ?? ''));
    owned.push(() => directory.close());
    await directory.replace(directoryRecords(volume.layout, 0), {
      modelFingerprint: modelFingerprint(model.blocks),
      generation: 0,
    });
  }
  const loader = new ParameterLoader(tiers, store);
  const sweep = new UpdateSweep(tiers, store, pool);
  const seed = options.seed ?? DEFAULTS.seed;
  const { blocks } = model;
  const optimizer = options.optimizer ?? {};
  return {
    model,
    tiers,
    layout,
    plan,
    store,
    writer,
    runner: new StepRunner({ blocks, plan, tiers, loader, activations, writer, rows, sweep, seed }),
    sweep,
    adamw: {
      beta1: optimizer.beta1 ?? ADAMW_DEFAULTS.beta1,
      beta2: optimizer.beta2 ?? ADAMW_DEFAULTS.beta2,
      epsilon: optimizer.epsilon ?? ADAMW_DEFAULTS.epsilon,
      weightDecay: optimizer.weightDecay ?? ADAMW_DEFAULTS.weightDecay,
    },
    learningRate: optimizer.learningRate ?? TRAINING_DEFAULTS.learningRate,
    maxGradNorm: optimizer.maxGradNorm ?? TRAINING_DEFAULTS.maxGradNorm,
    microBatchCount,
    exampleBatch: options.exampleBatch,
    budgets,
    owned,
  };
}

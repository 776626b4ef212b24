/**
 * @file Builds what an engine works with, in the order in which things depend on one another.
 */
import { dirname } from 'node:path';
import type { ComputeDtype, Tier } from '../../core/types.js';
import { createDevice, createMetaDevice } from '../../tiers/device/create-device.js';
import { HostPool } from '../../tiers/host/host-pool.js';
import { ShardDirectory, directoryRecords } from '../../tiers/nvme/directory.js';
import { TierManager } from '../../tiers/tier-manager.js';
import type { MicroBatch, Model } from '../model/block.js';
import { modelFingerprint } from '../model/model-fingerprint.js';
import { ADAMW_DEFAULTS, type AdamwOptions } from '../optim/adamw-options.js';
import { OptimizerPool } from '../optim/optimizer-pool.js';
import { computeWork } from '../plan/compute-work.js';
import { stepCosts, type MachineCosts, type StepCosts } from '../plan/costs.js';
import { packParams } from '../plan/packed-params.js';
import type { BlockProfile } from '../plan/block-profile.js';
import type { Phase } from '../plan/step-plan.js';
import type { MemoryPlan } from '../plan/placement.js';
import { layoutParameters, type ParameterLayout } from '../plan/parameter-layout.js';
import { tablesReadAhead } from '../plan/tables-read-ahead.js';
import { transferWork } from '../plan/transfer-work.js';
import { ActivationShapes } from './activation-shapes.js';
import { ActivationStore } from './activation-store.js';
import { checkOptions } from './check-options.js';
import { ComputeRunner } from './compute-runner.js';
import type { EngineOptions } from './engine-options.js';
import { EvaluationPlanner } from './evaluation-planner.js';
import { Evaluations } from './evaluations.js';
import { GradientWriter } from './gradient-writer.js';
import { initialiseStates } from './initialise-states.js';
import { ParameterLoader } from './parameter-loader.js';
import { ParameterStore } from './parameter-store.js';
import { planOn, TRAINING_DEFAULTS } from './plan-training.js';
import type { Release } from './release.js';
import { budgetsOf, createVolume, DEFAULTS } from './resources.js';
import { RowGradients } from './row-gradients.js';
import { simulateDevice, trainableParams } from './simulate-device.js';
import { ShardUpdates } from './shard-updates.js';
import { StepExecutor } from './step-executor.js';
import { lengthsOf, StepPlanner } from './step-planner.js';
import { StepTransfers } from './step-transfers.js';
import { TableUpdates } from './table-updates.js';
import { TrainingSteps } from './training-steps.js';
import { probeWorkspaces } from './workspace-probe.js';

/** What an engine works with, and owns. */
export interface EngineParts {
  readonly model: Model;
  readonly tiers: TierManager;
  readonly layout: ParameterLayout;
  readonly plan: MemoryPlan;
  readonly store: ParameterStore;
  readonly writer: GradientWriter;
  readonly planner: StepPlanner;
  readonly devicePeaks: (
    batches: readonly MicroBatch[],
  ) => Promise<Record<Phase, number>> | undefined;
  readonly stepCosts: (batches: readonly MicroBatch[], machine: MachineCosts) => StepCosts;
  /** Threads of the optimizer pool. */
  readonly workerCount: number;
  readonly steps: TrainingSteps;
  readonly evaluationPlanner: EvaluationPlanner;
  readonly evaluations: Evaluations;
  readonly evaluationPeak: (batches: readonly MicroBatch[]) => Promise<number> | undefined;
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
  const meta = createMetaDevice(device);
  if (meta !== undefined) owned.push(() => meta.dispose());
  const planned = planOn(meta ?? device, options, layout, budgets);
  device.ledger.resetPeak();
  const { plan, profiles, slotBytes, staging, workers, rowGathers } = planned;
  const host = HostPool.create({ budgetBytes: budgets.host });
  owned.push(() => host.dispose());
  const volume = await createVolume(options, plan.nvmeRequest, budgets.nvme);
  if (volume !== undefined) owned.push(() => volume.dispose({ remove: true }));
  const { stagingCount, spillStagingCount } = plan;
  const tiers = new TierManager({ device, host, volume, stagingCount, spillStagingCount });
  owned.push(() => tiers.dispose());
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
  const tables = new TableUpdates(
    store,
    tablesReadAhead(model.blocks, layout, { homes: plan.homes, dtype }),
  );
  const loader = new ParameterLoader(tiers, store, tables);
  const updates = new ShardUpdates(tiers, store, tables, pool);
  const region = device.reserve(plan.region.byteLength, 'region');
  owned.push(() => region.dispose());
  const seed = options.seed ?? DEFAULTS.seed;
  const { blocks } = model;
  const optimizer = options.optimizer ?? {};
  const maxGradNorm = optimizer.maxGradNorm ?? TRAINING_DEFAULTS.maxGradNorm;
  const { bf16Operands } = device.capabilities;
  const packing = { layout, homes: plan.homes, dtype, bf16Operands };
  const packed = blocks.map((block) => packParams(block, packing));
  const shapes = new ActivationShapes();
  const compute = new ComputeRunner({
    device,
    region,
    blocks,
    layout,
    packed,
    trainableOf: (block) => trainableParams(block, layout),
    alias: (address, rows) => loader.alias(address, rows),
    inputShape: shapes.of,
    onActivation: shapes.note,
    countUpload: (bytes) => {
      tiers.countUpload(bytes);
    },
  });
  owned.push(() => compute.clear());
  const transfers = new StepTransfers({
    blocks,
    layout,
    packed,
    tiers,
    region,
    loader,
    compute,
    training: { order: plan.order, writer, activations, rows },
  });
  const executor = new StepExecutor(device, compute, transfers, {
    ...options.execution,
    ...(options.logger === undefined ? {} : { logger: options.logger }),
  });
  // Without a meta device another shape would cost a run; the largest one's bytes are bounds.
  const profilesOf = (batch: MicroBatch): readonly BlockProfile[] =>
    meta === undefined ? profiles : probeWorkspaces(meta, blocks, layout, batch, dtype);
  const planner = new StepPlanner({
    blocks,
    layout,
    plan,
    dtype,
    bf16Operands,
    clips: maxGradNorm > 0,
    slotLengths: blocks.map((_, index) => slotBytes(index) / 4),
    profilesOf,
  });
  const evaluationPlanner = new EvaluationPlanner({
    ...packing,
    blocks,
    plan: { order: 'horizontal' },
    region: plan.region,
    // Memory is planned for the fields of so many.
    most: microBatchCount,
    lengthsOf: (batch) => lengthsOf(profilesOf(batch)),
  });
  return {
    model,
    tiers,
    layout,
    plan,
    store,
    writer,
    planner,
    devicePeaks: (batches) => {
      const step = planner.planFor(batches);
      return meta && simulateDevice(meta, { ...packing, blocks, plan, step, batches });
    },
    stepCosts: (batches, machine) => {
      const shapes = batches.map((batch) => profilesOf(batch).map((one) => one.outputShape));
      const outputShape = (block: number, microBatch: number) => shapes[microBatch]![block]!;
      const workOf = computeWork({ blocks, layout, dtype, outputShape });
      const buffers = { read: stagingCount, write: spillStagingCount };
      const work = { workOf, transferWork: transferWork({ ...packing, blocks }) };
      return stepCosts(machine, { workers, buffers, ...work });
    },
    workerCount: workers,
    steps: new TrainingSteps({
      layout,
      planner,
      executor,
      shapes,
      writer,
      rows,
      updates,
      lossBlock: blocks.at(-1)?.name ?? '',
      seed,
      maxGradNorm,
    }),
    evaluationPlanner,
    evaluations: new Evaluations({
      blocks,
      planner: evaluationPlanner,
      executor,
      shapes,
      exampleBatch: options.exampleBatch,
      seed,
    }),
    evaluationPeak: (batches) => {
      const step = evaluationPlanner.planFor(batches);
      return (
        meta &&
        simulateDevice(meta, { ...packing, blocks, plan, step, batches }).then((peaks) =>
          Math.max(...Object.values(peaks)),
        )
      );
    },
    adamw: {
      beta1: optimizer.beta1 ?? ADAMW_DEFAULTS.beta1,
      beta2: optimizer.beta2 ?? ADAMW_DEFAULTS.beta2,
      epsilon: optimizer.epsilon ?? ADAMW_DEFAULTS.epsilon,
      weightDecay: optimizer.weightDecay ?? ADAMW_DEFAULTS.weightDecay,
    },
    learningRate: optimizer.learningRate ?? TRAINING_DEFAULTS.learningRate,
    maxGradNorm,
    microBatchCount,
    exampleBatch: options.exampleBatch,
    budgets,
    owned,
  };
}

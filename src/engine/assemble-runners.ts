/**
 * @file Builds what runs evaluations and sequences on weights that are at their homes: a region, an
 * executor, and what makes its plans.
 */
import { assert } from '../../core/errors.js';
import type { Device } from '../../tiers/device/device.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import type { MicroBatch, Model } from '../model/block.js';
import type { InferencePlan } from '../plan/inference-plan.js';
import { packParams } from '../plan/packed-params.js';
import type { ParameterLayout } from '../plan/parameter-layout.js';
import type { StepPlan } from '../plan/step-plan.js';
import { ActivationShapes } from './activation-shapes.js';
import { ComputeRunner } from './compute-runner.js';
import { ContinuationPlanner } from './continuation-planner.js';
import { EvaluationPlanner } from './evaluation-planner.js';
import { Evaluations } from './evaluations.js';
import type { InferenceOptions } from './inference-options.js';
import { probeForward } from './inference-probe.js';
import { KeyValueCache } from './key-value-cache.js';
import type { OutputLengths } from './micro-batch-shapes.js';
import { ParameterLoader } from './parameter-loader.js';
import type { ParameterStore } from './parameter-store.js';
import type { Release } from './release.js';
import { DEFAULTS } from './resources.js';
import { SequenceRunner } from './sequence-runner.js';
import { simulateDevice } from './simulate-device.js';
import { StepExecutor } from './step-executor.js';
import { StepTransfers, type SequenceParts } from './step-transfers.js';

/** What runs on the weights, and says by what plans. */
export interface InferenceRunners {
  /** With an example batch. */
  readonly evaluations: Evaluations | undefined;
  readonly evaluationPlanner: EvaluationPlanner | undefined;
  /** Highest bytes on the device while a plan over these batches is carried out. */
  readonly devicePeak: (
    step: StepPlan,
    batches: readonly MicroBatch[],
  ) => Promise<number> | undefined;
  /** With a `maxLength`. */
  readonly sequence: SequenceRunner | undefined;
}

/** What they are built on; the engine owns it. */
export interface RunnerParts {
  readonly layout: ParameterLayout;
  readonly plan: InferencePlan;
  readonly tiers: TierManager;
  readonly store: ParameterStore;
  /** Undefined on devices that only a run tells about. */
  readonly meta: Device | undefined;
}

/** @param owned receives how to free what has been built, oldest first, also when this throws */
export function assembleRunners(
  options: InferenceOptions,
  { layout, plan, tiers, store, meta }: RunnerParts,
  owned: Release[],
): InferenceRunners {
  const { exampleBatch, maxLength, model } = options;
  const { device } = tiers;
  const { blocks } = model;
  const { dtype } = store;
  const { bf16Operands } = device.capabilities;
  const packing = { layout, homes: plan.homes, dtype, bf16Operands };
  const generating =
    maxLength === undefined
      ? undefined
      : sequenceParts(tiers, plan, maxLength, logitsBytes(model, layout), owned);
  const region = device.reserve(plan.region.byteLength, 'region');
  owned.push(() => region.dispose());
  const loader = new ParameterLoader(tiers, store);
  const packed = blocks.map((block) => packParams(block, packing));
  const shapes = new ActivationShapes();
  const compute = new ComputeRunner({
    device,
    region,
    blocks,
    layout,
    packed,
    trainableOf: () => [],
    alias: (address, rows) => loader.alias(address, rows),
    inputShape: shapes.of,
    onActivation: shapes.note,
    countUpload: (bytes) => {
      tiers.countUpload(bytes);
    },
    ...(generating && { cache: generating.cache }),
  });
  owned.push(() => compute.clear());
  const parts = { blocks, layout, packed, tiers, region, loader, compute };
  const transfers = new StepTransfers({ ...parts, ...(generating && { sequence: generating }) });
  const executor = new StepExecutor(device, compute, transfers, {
    ...options.execution,
    ...(options.logger === undefined ? {} : { logger: options.logger }),
  });
  const passes = { ...packing, blocks, region: plan.region, plan: { order: 'vertical' } } as const;
  const seed = options.seed ?? DEFAULTS.seed;
  const evaluationPlanner =
    exampleBatch &&
    new EvaluationPlanner({
      ...passes,
      most: plan.evaluationBatches,
      // Without a meta device another shape would cost a run; the largest one's bytes are bounds.
      lengthsOf: lengthsBy((batch) =>
        probeForward(
          { device: meta ?? device, blocks, layout, dtype },
          meta ? batch : exampleBatch,
        ),
      ),
    });
  const { cacheTiers, cacheWidths } = plan;
  return {
    devicePeak: (step, batches) => {
      const cacheBytes = generating?.cache.deviceBytes ?? 0;
      const simulation = { ...packing, blocks, plan, step, batches, cacheBytes };
      return meta && simulateDevice(meta, simulation).then(({ forward }) => forward);
    },
    evaluationPlanner,
    evaluations:
      exampleBatch &&
      evaluationPlanner &&
      new Evaluations({ blocks, planner: evaluationPlanner, executor, shapes, exampleBatch, seed }),
    sequence:
      generating &&
      new SequenceRunner({
        planner: new ContinuationPlanner({ ...passes, cacheTiers, cacheWidths }),
        executor,
        shapes,
        logits: generating.logits,
        limit: generating.cache.limit,
        seed,
      }),
  };
}

/** Host bytes of one row of logits. */
export function logitsBytes({ blocks }: Pick<Model, 'blocks'>, layout: ParameterLayout): number {
  const head = blocks.at(-1);
  assert(head?.kind === 'tiled', 'the probe has refused other heads');
  return (layout.params.get(head.tiledParam)?.spec.shape[0] ?? 0) * 4;
}

function sequenceParts(
  tiers: TierManager,
  { cacheTiers, cacheWidths }: InferencePlan,
  maxLength: number,
  bytes: number,
  owned: Release[],
): SequenceParts {
  const cache = new KeyValueCache(tiers, cacheTiers, cacheWidths, maxLength);
  owned.push(() => cache.dispose());
  const logits = tiers.host.lease(bytes, 'logits of one position');
  owned.push(() => logits.dispose());
  return { cache, logits };
}

function lengthsBy(
  profilesOf: (batch: MicroBatch) => readonly { readonly outputShape: readonly number[] }[],
): (batch: MicroBatch) => OutputLengths {
  return (batch) => {
    const outputs = profilesOf(batch).map(({ outputShape }) =>
      outputShape.reduce((product, length) => product * length, 1),
    );
    return { outputs, losses: outputs.at(-1) ?? 0 };
  };
}

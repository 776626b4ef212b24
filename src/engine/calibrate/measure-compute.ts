/**
 * @file Measures the compute operations of a model's blocks: a step over a few of each kind runs a few
 * times, on the real device, by the code that the executor runs, with the step's transfers and
 * updates beside it.
 *
 * A batch that would take too long is shortened; times of longer ones are then scaled by their
 * multiply-adds. Values are constants, since no kernel's time depends on them.
 */
import { isCoded } from '../../../core/errors.js';
import { createPlanningDevice } from '../../../tiers/device/create-device.js';
import type { Device, DeviceRegion } from '../../../tiers/device/device.js';
import type { Block, MicroBatch } from '../../model/block.js';
import { computeWork, type ComputeWork } from '../../plan/compute-work.js';
import type { MeasuredCompute } from '../../plan/costs.js';
import { layoutParameters, type ParameterLayout } from '../../plan/parameter-layout.js';
import type { Compute, StepPlan } from '../../plan/step-plan.js';
import { transferWork } from '../../plan/transfer-work.js';
import type { ComputeRunner } from '../compute-runner.js';
import { batchesOf, packingOf, stepOf } from '../forecast-training.js';
import { planOn, type PlannedTraining, type PlanningOptions } from '../plan-training.js';
import { budgetsOf, DEFAULTS } from '../resources.js';
import { withComputeRunner } from '../simulate-device.js';
import { productRate } from './beside-compute.js';
import type { CopyArea } from './copy-area.js';
import type { Deadline } from './deadline.js';
import { StepCompany, type CompanyCosts } from './step-company.js';
import type { UpdateArea } from './update-area.js';

/** What is measured: a run's options, and its largest micro-batch at other lengths. */
export interface ComputeRequest {
  readonly options: Omit<PlanningOptions, 'exampleBatch'>;
  /** Longest row. */
  readonly length: number;
  readonly batchOf: (length: number) => MicroBatch;
}

/** What is measured with; its caller owns all of it. */
export interface MeasuringParts {
  /** With room for a step as planned, and for a product. */
  readonly device: Device;
  readonly copyArea: CopyArea;
  readonly updateArea: UpdateArea;
}

/** Costs of what runs together in a step. */
export interface StepCosts extends CompanyCosts {
  readonly compute: readonly MeasuredCompute[];
}

/** Rounds of one operation at most, after the first, which touches memory. */
const ROUNDS = 9;

/** Rounds that a batch has to leave time for. */
const LEAST_ROUNDS = 3;

/** Blocks of each kind: more than one, so that the next one's parameters are not in the processor's
 * cache. */
const PER_KIND = 3;

/** As float32 and as bfloat16 twice, 2^-7. */
const FILLING = 0x3c003c00;

const FILL_BYTES = 2 ** 20;

/** Of the time. */
const FILLING_SHARE = 0.25;

/**
 * Means by operation, for blocks of each kind. Where time is over before an operation has run,
 * that is missing.
 *
 * @throws as `planTraining` and blocks do
 */
export async function measureCompute(
  request: ComputeRequest,
  parts: MeasuringParts,
  alone: CompanyCosts,
  until: Deadline,
): Promise<StepCosts> {
  // Everything is fetched, so that parameters lie in the region as in a run that offloads.
  const options: Omit<PlanningOptions, 'exampleBatch'> = {
    ...request.options,
    model: { blocks: fewOfEachKind(request.options.model.blocks) },
    gradientAccumulationSteps: 1,
    offloadParam: 'cpu',
    offloadOptimizer: 'cpu',
    hostMemory: Number.MAX_SAFE_INTEGER,
  };
  const rate = await productRate(parts.device);
  let { length } = request;
  for (;;) {
    const planned = await plannedStep({ ...options, exampleBatch: request.batchOf(length) });
    const works = computesOf(planned.step).map(planned.workOf);
    const multiplyAdds = works.reduce((sum, work) => sum + work.multiplyAdds, 0);
    if (length === 1 || (multiplyAdds / rate) * (LEAST_ROUNDS + 1) < until.seconds) {
      return run(planned, parts, alone, until);
    }
    length = Math.ceil(length / 2);
  }
}

interface PlannedStep {
  readonly options: PlanningOptions;
  readonly layout: ParameterLayout;
  readonly planned: PlannedTraining;
  readonly step: StepPlan;
  readonly workOf: ReturnType<typeof computeWork>;
}

async function plannedStep(options: PlanningOptions): Promise<PlannedStep> {
  const { blocks } = options.model;
  const budgets = budgetsOf(options);
  const layout = layoutParameters(blocks, options.subGroupSize ?? DEFAULTS.subGroupSize);
  const name = options.device ?? 'auto';
  const device = await createPlanningDevice(name, { budgetBytes: budgets.device });
  try {
    const planned = planOn(device, options, layout, budgets);
    const step = stepOf(options, packingOf(device, options, layout, planned), planned);
    const { profiles } = planned;
    const dtype = options.dtype ?? 'float32';
    const outputShape = (block: number) => profiles[block]!.outputShape;
    const workOf = computeWork({ blocks, layout, dtype, outputShape });
    return { options, layout, planned, step, workOf };
  } finally {
    await device.dispose();
  }
}

/** Times of operations with one key. */
interface Times {
  readonly work: ComputeWork;
  count: number;
  ranMs: number;
  launchedMs: number;
}

async function run(
  { options, layout, planned, step, workOf }: PlannedStep,
  { device, copyArea, updateArea }: MeasuringParts,
  alone: CompanyCosts,
  until: Deadline,
): Promise<StepCosts> {
  // The first round touches memory; it counts for what had no time to run again.
  const [first, later] = [new Map<string, Times>(), new Map<string, Times>()];
  const note = (times: Map<string, Times>, action: Compute, ran: number, launched: number) => {
    const work = workOf(action);
    let known = times.get(work.key);
    if (known === undefined) {
      times.set(work.key, (known = { work, count: 0, ranMs: 0, launchedMs: 0 }));
    }
    known.count += 1;
    known.ranMs += ran;
    known.launchedMs += launched;
  };
  const packing = packingOf(device, options, layout, planned);
  const { blocks } = options.model;
  const batches = batchesOf(options);
  const simulation = { ...packing, blocks, plan: planned.plan, step, batches };
  const work = { copies: copyArea, updates: updateArea, transferWork: transferWork(simulation) };
  const company = device.capabilities.overlap ? new StepCompany(work) : undefined;
  let costs = alone;
  await withComputeRunner(device, simulation, async ({ runner, region, restart }) => {
    await fill(region, until.part(FILLING_SHARE));
    try {
      for (let round = 0; round <= ROUNDS && !(round > 0 && until.isOver); round += 1) {
        restart();
        if (round === 1) company?.reset();
        const times = round === 0 ? first : later;
        await launchAhead({ device, runner, step, company, until }, (...one) =>
          note(times, ...one),
        );
        if (round > 0 && company !== undefined) costs = company.costs(alone);
      }
    } finally {
      await company?.settled();
    }
  });
  const compute = [...new Map([...first, ...later]).values()].map((one) => ({
    ...one.work,
    seconds: one.ranMs / one.count / 1000,
    launchSeconds: one.launchedMs / one.count / 1000,
  }));
  return { copies: costs.copies, update: costs.update, compute };
}

/** One round, and what it runs with. */
interface Round {
  readonly device: Device;
  readonly runner: ComputeRunner;
  readonly step: StepPlan;
  readonly company: StepCompany | undefined;
  readonly until: Deadline;
}

/**
 * Launches as the executor does, one operation ahead of what runs, so that launching takes what it
 * takes of the processor; an operation's time begins when the one before has run. A device that
 * computes before it returns spends all of it there.
 */
async function launchAhead(
  { device, runner, step, company, until }: Round,
  note: (action: Compute, ranMs: number, launchedMs: number) => void,
): Promise<void> {
  const { overlap } = device.capabilities;
  let freeAt = 0;
  let before = Promise.resolve();
  for (const operation of step.operations) {
    if (freeAt > 0 && until.isOver) break;
    if (operation.lane !== 'compute') {
      // One update is under way at most, as in a run.
      if (operation.action.kind === 'norm') await company?.updated();
      company?.start(operation);
      continue;
    }
    const action = operation.action as Compute;
    const begun = performance.now();
    await runner.run(operation, action);
    const launched = overlap ? performance.now() : begun;
    const ran = device.computed().then(() => {
      const end = performance.now();
      note(action, end - Math.max(launched, freeAt), launched - begun);
      freeAt = end;
    });
    await before;
    before = ran;
  }
  await before;
  await company?.finish();
}

/** Memory that was never written to is one page of zeros, which no run reads that fast. */
async function fill(region: DeviceRegion, until: Deadline): Promise<void> {
  const pattern = new Uint8Array(new SharedArrayBuffer(FILL_BYTES));
  new Uint32Array(pattern.buffer).fill(FILLING);
  for (let at = 0; at < region.byteLength && !until.isOver; at += FILL_BYTES) {
    const bytes = Math.min(FILL_BYTES, region.byteLength - at);
    await region.write(at, pattern.subarray(0, bytes), 'float32', 'float32');
  }
}

function computesOf({ operations }: StepPlan): Compute[] {
  return operations.flatMap(({ lane, action }) => (lane === 'compute' ? [action as Compute] : []));
}

/** The first blocks of each kind and the last block; all of them where a shorter chain lacks a
 * parameter that some of them share. */
function fewOfEachKind(blocks: readonly Block[]): readonly Block[] {
  const counts = new Map<string, number>();
  const some = blocks.filter((block, index) => {
    const kind = `${block.kind} ${block.kindKey}`;
    const count = (counts.get(kind) ?? 0) + 1;
    counts.set(kind, count);
    return count <= PER_KIND || index === blocks.length - 1;
  });
  try {
    layoutParameters(some, DEFAULTS.subGroupSize);
    return some;
  } catch (error) {
    if (isCoded(error) && error.code === 'BLOCK_INVALID') return blocks;
    throw error;
  }
}

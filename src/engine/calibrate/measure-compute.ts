/**
 * @file Measures the compute operations of a model's blocks: a step over a few of each kind runs a few
 * times, on the real device, by the code that the executor runs, with the step's transfers and
 * updates beside it.
 *
 * Values are constants, since no kernel's time depends on them.
 */
import type { Device, DeviceRegion } from '../../../tiers/device/device.js';
import type { ComputeWork } from '../../plan/compute-work.js';
import type { MeasuredCompute } from '../../plan/costs.js';
import type { Compute, StepPlan } from '../../plan/step-plan.js';
import { transferWork } from '../../plan/transfer-work.js';
import type { ComputeRunner } from '../compute-runner.js';
import { batchesOf, packingOf } from '../forecast-training.js';
import { withComputeRunner } from '../simulate-device.js';
import { affordableStep, type ComputeRequest, type PlannedStep } from './affordable-step.js';
import { productRate } from './beside-compute.js';
import type { CopyArea } from './copy-area.js';
import type { Deadline } from './deadline.js';
import { StepCompany, type CompanyCosts } from './step-company.js';
import type { UpdateArea } from './update-area.js';

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
  const rate = await productRate(parts.device);
  return run(await affordableStep(request, rate, until.seconds), parts, alone, until);
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

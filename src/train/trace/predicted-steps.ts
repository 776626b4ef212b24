/**
 * @file The traced steps as the plan predicts them: one simulation of all of them in a row, by the
 * costs of this machine, as slices beside the measured ones.
 */
import { LINKS } from '../../../core/types.js';
import { laneSeconds, type StepCosts } from '../../plan/costs.js';
import { simulateWith } from '../../plan/simulate.js';
import type { StepPlan } from '../../plan/step-plan.js';
import type { SimulatedStep } from '../../plan/timeline.js';
import { nameOf, placeOf, trackOf } from './operation-text.js';
import type { BusySeconds } from './trace-event.js';
import type { TraceProcess } from './trace-process.js';

/** A step that is predicted: what it does, and what that costs. */
export interface PlannedStep {
  readonly plan: StepPlan;
  readonly costs: StepCosts;
}

/** Operations that are simulated at most: seconds of work, however long the trace. */
const MOST_OPERATIONS = 200_000;

/** As many steps as are predicted. */
export function predictable<T extends { readonly plan: StepPlan }>(steps: readonly T[]): T[] {
  let operations = 0;
  return steps.filter(({ plan }) => (operations += plan.operations.length) <= MOST_OPERATIONS);
}

/**
 * Writes predicted steps.
 *
 * @param steps in order, the first of which has number `firstStep`
 * @param origin where the first one begins, in microseconds of the trace
 */
export function writePredicted(
  steps: readonly PlannedStep[],
  firstStep: number,
  origin: number,
  process: TraceProcess,
): void {
  const simulated = simulateSteps(steps);
  const at = (seconds: number): number => origin + seconds * 1e6;
  for (const [index, one] of simulated.entries()) {
    const step = firstStep + index;
    process.other('step', {
      name: `step ${step}`,
      cat: 'step',
      start: at(one.start),
      end: at(one.finished),
      args: { step, busy_seconds: busySeconds(one, steps[index]!.costs) },
    });
  }
  const runs = simulated.flatMap(({ plan, starts, ends }, index) =>
    plan.operations.map((operation) => ({
      step: firstStep + index,
      operation,
      start: at(starts[operation.id]!),
      end: at(ends[operation.id]!),
    })),
  );
  for (const { step, operation, start, end } of runs.sort((a, b) => a.end - b.end)) {
    const { id, lane, phase, action, bytes } = operation;
    const args = { step, operation: id, action: action.kind, phase, ...placeOf(action), bytes };
    process.operation(trackOf(operation, lane), { name: nameOf(action), start, end, args });
  }
}

/** One after the other, each by its own costs. */
function simulateSteps(steps: readonly PlannedStep[]): readonly SimulatedStep[] {
  const [first] = steps;
  if (first === undefined) return [];
  const seconds = steps.map(({ costs }) => laneSeconds(costs));
  const timeline = simulateWith(
    steps.map(({ plan }) => plan),
    (step, operation, lane) => seconds[step]!(step, operation, lane),
    {
      ...first.costs,
      sharedUpdates: true,
      hostSeconds: (step, operation) => steps[step]!.costs.hostSeconds?.(step, operation) ?? 0,
    },
  );
  return timeline.steps;
}

/**
 * Seconds in which transfers and kernels keep their lanes busy. What updates move does not count:
 * workers move it themselves, and a trace shows it as update.
 */
function busySeconds({ plan }: SimulatedStep, costs: StepCosts): BusySeconds {
  const busy = { compute: 0, upload: 0, download: 0, nvme_read: 0, nvme_write: 0 };
  const of = laneSeconds(costs);
  for (const operation of plan.operations) {
    if (operation.lane === 'compute') busy.compute += of(0, operation, 'compute');
    else if (operation.lane !== 'update') {
      for (const link of LINKS) busy[link] += of(0, operation, link);
    }
  }
  return busy;
}

/**
 * @file Which step of a trace is shown: a typical one whose end can be seen.
 *
 * A step's update runs beside the next step, so that what a step takes is the time until the next one
 * begins. Where an evaluation or a checkpoint lies between, or nothing follows, that time is another.
 */
import type { Interval } from './intervals.js';

/** What a trace tells of its steps. */
export interface StepIntervals {
  /** From a step's first operation to the end of its backward pass, by number. */
  readonly steps: ReadonlyMap<number, Interval>;
  /** Evaluations and checkpoints. */
  readonly interludes: readonly Interval[];
}

export interface ChosenStep {
  readonly step: number;
  /** Until the next one begins, or until its own end where that is not known. */
  readonly window: Interval;
  /** Whether the window goes to the next step's begin. */
  readonly isWhole: boolean;
  /** Lengths of the shortest and of the longest of the whole ones. */
  readonly range: readonly [number, number] | undefined;
}

/**
 * The step of median length among the whole ones but the first, which finds nothing ready; else the
 * first, else the last of the others. Undefined where there is none.
 */
export function chooseStep({ steps, interludes }: StepIntervals): ChosenStep | undefined {
  const numbers = [...steps.keys()].sort((a, b) => a - b);
  const starts = interludes.map(({ start }) => start).sort((a, b) => a - b);
  const whole = numbers.flatMap((step) => {
    const [own, next] = [steps.get(step)!, steps.get(step + 1)];
    if (next === undefined || next.start <= own.start) return [];
    if (isBetween(starts, own.end, next.start)) return [];
    return [{ step, window: { start: own.start, end: next.start } }];
  });
  const warm = whole.filter(({ step }) => step !== numbers[0]);
  const sorted = (warm.length > 0 ? warm : whole).sort((a, b) => lengthOf(a) - lengthOf(b));
  const median = sorted[(sorted.length - 1) >> 1];
  if (median !== undefined) {
    const range = [lengthOf(sorted[0]!), lengthOf(sorted.at(-1)!)] as const;
    return { ...median, isWhole: true, range };
  }
  const step = numbers.at(-1);
  if (step === undefined) return undefined;
  return { step, window: steps.get(step)!, isWhole: false, range: undefined };
}

function lengthOf({ window }: { readonly window: Interval }): number {
  return window.end - window.start;
}

/** Whether one of `sorted` lies there. */
function isBetween(sorted: readonly number[], from: number, to: number): boolean {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]! < from) low = middle + 1;
    else high = middle;
  }
  return low < sorted.length && sorted[low]! < to;
}

/**
 * @file Times alternatives in turn in one process: on a shared machine single times drift by up to
 * two, ratios of neighbours hold.
 *
 * A case that has a target says so in its line (`target`, `holds`). One that misses it is named on
 * stderr and makes the process exit with 1, always: a figure that is claimed must be able to fail.
 * On a machine that does other work at the same time it may fail for that reason alone.
 */

/** One alternative, timed from call to result, or by the seconds that it returns. */
export type Run = () => unknown;

/** At least nine, so that a median survives four disturbed rounds. */
export const ROUNDS = 9;

/** Seconds of each round, by the alternative's name. */
export type Times<Name extends string> = Readonly<Record<Name, readonly number[]>>;

/** What a line says of a claim. */
export interface Verdict {
  /** Least share of the ceiling that is claimed. */
  readonly target: number;
  readonly holds: boolean;
}

export function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1]!;
}

/** Four digits: more would be noise. */
export function round4(value: number): number {
  return Number(value.toPrecision(4));
}

/** Median over the rounds of the ceiling's time divided by the time beside it. */
export function shareOf(ceiling: readonly number[], times: readonly number[]): number {
  return round4(median(times.map((seconds, round) => ceiling[round]! / seconds)));
}

/** Runs each once to warm up, then all in each round, in an order that turns round every time. */
export async function alternate<Name extends string>(
  runs: Readonly<Record<Name, Run>>,
  rounds: number = ROUNDS,
): Promise<Times<Name>> {
  const names = Object.keys(runs) as Name[];
  const times = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<
    Name,
    number[]
  >;
  for (const name of names) await runs[name]();
  for (let round = 0; round < rounds; round += 1) {
    for (const name of round % 2 === 0 ? names : names.toReversed()) {
      const start = process.hrtime.bigint();
      const own = await runs[name]();
      const seconds = Number(process.hrtime.bigint() - start) / 1e9;
      times[name].push(typeof own === 'number' ? own : seconds);
    }
  }
  return times;
}

/** Whether `share` reaches `target`. */
export function verdictOf(share: number, target: number): Verdict {
  return { target, holds: share >= target };
}

/** What a benchmark prints of a case, as one line of JSON. */
export interface CaseLine extends Partial<Verdict> {
  readonly case: string;
  readonly [figure: string]: unknown;
}

/** Prints a case's line; a claim that does not hold fails the process once all cases have run. */
export function printCase(line: CaseLine): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
  if (line.holds !== false) return;
  process.stderr.write(`${line.case}: below its target of ${line.target}\n`);
  process.exitCode = 1;
}

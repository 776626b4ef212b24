/**
 * @file Times cases alternately in one process: on a shared machine single times drift by up to
 * two, ratios of neighbours hold.
 */

export interface Timed {
  readonly name: string;
  /** Moves `bytes` bytes. */
  run(): void;
  readonly bytes: number;
}

/** One line of a benchmark's result. */
export interface CaseResult {
  readonly case: string;
  /** Median over the rounds of the ceiling's time divided by the case's time, per byte. */
  readonly ratio: number;
  readonly gbPerSecond: number;
  readonly ceilingGbPerSecond: number;
  readonly rounds: number;
}

/** At least nine, so that a median survives four disturbed rounds. */
const ROUNDS = 15;

const median = (values: number[]) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)]!;

function seconds(run: () => void): number {
  const start = process.hrtime.bigint();
  run();
  return Number(process.hrtime.bigint() - start) / 1e9;
}

/** Times every case beside `ceiling` in each round and prints a JSON line for each. */
export function compareWithCeiling(ceiling: Timed, cases: readonly Timed[]): CaseResult[] {
  for (const each of [ceiling, ...cases]) each.run();
  return cases.map((each) => {
    const rounds = Array.from({ length: ROUNDS }, (_, round) => {
      // Which of the two goes first changes from round to round.
      const order = round % 2 === 0 ? [ceiling, each] : [each, ceiling];
      const times = order.map((timed) => seconds(() => timed.run()));
      const [ceilingTime, time] = (round % 2 === 0 ? times : times.reverse()) as [number, number];
      return { time: time / each.bytes, ceilingTime: ceilingTime / ceiling.bytes };
    });
    const result: CaseResult = {
      case: each.name,
      ratio: round3(median(rounds.map((round) => round.ceilingTime / round.time))),
      gbPerSecond: round3(1e-9 / median(rounds.map((round) => round.time))),
      ceilingGbPerSecond: round3(1e-9 / median(rounds.map((round) => round.ceilingTime))),
      rounds: ROUNDS,
    };
    process.stdout.write(`${JSON.stringify(result)}\n`);
    return result;
  });
}

function round3(value: number): number {
  return Number(value.toPrecision(4));
}

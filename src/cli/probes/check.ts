/**
 * @file What a probe of the doctor finds out about one thing.
 */

/** Facts have the same keys on every machine; what is unknown or absent is null. */
export type CheckFacts = Readonly<Record<string, string | number | boolean | null | string[]>>;

/** One line of the doctor's report. */
export interface Check {
  /** Stable name. */
  readonly name: string;
  /** Whether everything that helps is there. Training also works without. */
  readonly ok: boolean;
  /** For people. */
  readonly summary: string;
  /** What the missing thing costs and what to do; null when nothing is missing. */
  readonly cost: string | null;
  readonly facts: CheckFacts;
}

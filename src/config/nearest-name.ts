/**
 * @file The name that a mistyped one most likely meant.
 *
 * Edit distance with adjacent transpositions (optimal string alignment). A name that is a part of a
 * candidate (`batch_size`) lies nearer than its length alone says. Ties go to the earlier candidate.
 */

/** Shorter parts are in too many names. */
const PART_LENGTH = 4;

/** A part counts about as two typing errors. */
const PART_DISTANCE = 1.5;

/** The candidate with the smallest edit distance to `name`. `candidates` is not empty. */
export function nearestName<T extends string>(name: string, candidates: readonly T[]): T {
  let best = candidates[0]!;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const candidate of candidates) {
    let distance = editDistance(name, candidate);
    if (name.length >= PART_LENGTH && candidate.includes(name)) {
      distance = Math.min(distance, PART_DISTANCE);
    }
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/** Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. */
export function editDistance(a: string, b: string): number {
  let beforePrevious: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const substitution = previous[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      let distance = Math.min(substitution, previous[j]! + 1, row[j - 1]! + 1);
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) distance = Math.min(distance, beforePrevious[j - 2]! + 1);
      row.push(distance);
    }
    [beforePrevious, previous] = [previous, row];
  }
  return previous[b.length]!;
}

/**
 * @file From logits to a token: the likeliest, or one that is drawn.
 *
 * In transformers' order: repetition penalty, then, where tokens are drawn, temperature, top-k and
 * top-p (its LogitsProcessors and warpers of those names), computed in double. Draws depend on the
 * seed and on the token's number alone.
 */
import { SpillwayError } from '../../core/errors.js';
import { Random } from '../data/random.js';
import type { GenerationSettings } from './generation-settings.js';

/** A token and its probability among those that may be drawn. */
export interface Candidate {
  readonly id: number;
  readonly probability: number;
}

export class TokenSampler {
  readonly #settings: GenerationSettings;
  /** Tokens of the sequence, the prompt's included. */
  readonly #seen: Set<number>;
  #drawn = 0;

  /** @param prompt tokens before the first that is taken */
  constructor(settings: GenerationSettings, prompt: readonly number[]) {
    this.#settings = settings;
    this.#seen = new Set(prompt);
  }

  /**
   * The next token.
   *
   * @param logits [V]; not changed
   * @throws NON_FINITE when no token has a finite logit, or one is NaN
   */
  next(logits: Float32Array): number {
    const id = this.#settings.doSample ? this.#draw(logits) : likeliest(this.#penalised(logits));
    this.#seen.add(id);
    return id;
  }

  /** What `next` draws from, ascending ids. @throws as `next` */
  candidates(logits: Float32Array): Candidate[] {
    const { temperature, topK, topP } = this.#settings;
    const scores = this.#penalised(logits).map((score) => score / temperature);
    const largest = scores[likeliest(scores)]!;
    const least = topK > 0 && topK < scores.length ? kthLargest(scores, topK) : -Infinity;
    const kept: { id: number; weight: number }[] = [];
    for (const [id, score] of scores.entries()) {
      const weight = score < least ? 0 : Math.exp(score - largest);
      if (weight > 0) kept.push({ id, weight });
    }
    const nucleus = topP < 1 ? mostLikely(kept, topP) : kept;
    const total = nucleus.reduce((sum, { weight }) => sum + weight, 0);
    return nucleus.map(({ id, weight }) => ({ id, probability: weight / total }));
  }

  #draw(logits: Float32Array): number {
    const candidates = this.candidates(logits);
    let rest = uniform(this.#settings.seed, this.#drawn);
    this.#drawn += 1;
    for (const { id, probability } of candidates) {
      rest -= probability;
      if (rest < 0) return id;
    }
    // Rounding may leave a little.
    return candidates.at(-1)!.id;
  }

  #penalised(logits: Float32Array): Float64Array {
    const scores = Float64Array.from(logits);
    if (scores.some(Number.isNaN) || !scores.some(Number.isFinite) || scores.includes(Infinity)) {
      throw new SpillwayError(
        'NON_FINITE',
        'the logits are not finite; the weights may be damaged, or too large for their dtype',
      );
    }
    const { repetitionPenalty: penalty } = this.#settings;
    if (penalty === 1) return scores;
    for (const id of this.#seen) {
      const score = scores[id];
      if (score !== undefined) scores[id] = score < 0 ? score * penalty : score / penalty;
    }
    return scores;
  }
}

/** The first of the largest. */
function likeliest(scores: Float64Array): number {
  let best = 0;
  for (let id = 1; id < scores.length; id += 1) if (scores[id]! > scores[best]!) best = id;
  return best;
}

/** The likeliest that together have probability `share`, at least one. Ids stay in order. */
function mostLikely(
  kept: readonly { id: number; weight: number }[],
  share: number,
): { id: number; weight: number }[] {
  const total = kept.reduce((sum, { weight }) => sum + weight, 0);
  const ascending = [...kept].sort((a, b) => a.weight - b.weight || b.id - a.id);
  let below = 0;
  let first = 0;
  while (first < ascending.length - 1) {
    below += ascending[first]!.weight;
    if (below / total > 1 - share) break;
    first += 1;
  }
  return ascending.slice(first).sort((a, b) => a.id - b.id);
}

/** The k-th largest value (Hoare's selection); `scores` is not changed. */
function kthLargest(scores: Float64Array, k: number): number {
  const values = scores.slice();
  const target = values.length - k;
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const pivot = values[(low + high) >>> 1]!;
    let left = low;
    let right = high;
    while (left <= right) {
      while (values[left]! < pivot) left += 1;
      while (values[right]! > pivot) right -= 1;
      if (left > right) break;
      const kept = values[left]!;
      values[left] = values[right]!;
      values[right] = kept;
      left += 1;
      right -= 1;
    }
    if (target <= right) high = right;
    else if (target >= left) low = left;
    else break;
  }
  return values[target]!;
}

/** A number from 0 to below 1, of 53 random bits. */
function uniform(seed: number, index: number): number {
  const random = Random.keyed(seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0, index);
  const [high, low] = [random.next() >>> 5, random.next() >>> 6];
  return (high * 2 ** 26 + low) / 2 ** 53;
}

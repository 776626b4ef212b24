// Goal: tokens are drawn from the distributions that transformers' warpers leave, as often as these
// say, and the same ones for the same seed.
import { readFileSync } from 'node:fs';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { GenerationSettings } from '../../src/generate/generation-settings.js';
import { TokenSampler } from '../../src/generate/token-sampler.js';

interface Case {
  readonly logits: readonly number[];
  readonly previous: readonly number[];
  readonly temperature: number;
  readonly top_k: number;
  readonly top_p: number;
  readonly repetition_penalty: number;
  readonly probabilities: readonly number[];
}

const url = new URL('../../fixtures/generate/generate.json', import.meta.url);
const { distributions } = JSON.parse(readFileSync(url, 'utf8')) as {
  readonly distributions: readonly Case[];
};

const SETTINGS: GenerationSettings = {
  maxNewTokens: 1,
  doSample: true,
  temperature: 1,
  topK: 0,
  topP: 1,
  repetitionPenalty: 1,
  seed: 1,
  eosTokenIds: [],
};

const sampler = (settings: Partial<GenerationSettings>, previous: readonly number[] = []) =>
  new TokenSampler({ ...SETTINGS, ...settings }, previous);

const settingsOf = (one: Case): Partial<GenerationSettings> => ({
  temperature: one.temperature,
  topK: one.top_k,
  topP: one.top_p,
  repetitionPenalty: one.repetition_penalty,
});

describe('the distribution', () => {
  it.each(distributions)(
    'is that of transformers: temperature $temperature, top_k $top_k, top_p $top_p, penalty $repetition_penalty',
    (one) => {
      const candidates = sampler(settingsOf(one), one.previous).candidates(
        Float32Array.from(one.logits),
      );
      const actual = one.logits.map(
        (_, id) => candidates.find((candidate) => candidate.id === id)?.probability ?? 0,
      );
      actual.forEach((value, id) => expect(value).toBeCloseTo(one.probabilities[id]!, 6));
      expect(candidates.map(({ id }) => id)).toEqual(
        one.probabilities.flatMap((value, id) => (value > 0 ? [id] : [])),
      );
    },
  );

  it('is drawn from as often as it says', () => {
    const one = distributions[0]!;
    const logits = Float32Array.from(one.logits);
    const drawing = sampler({ seed: 7 });
    const draws = 20_000;
    const counts = one.logits.map(() => 0);
    for (let draw = 0; draw < draws; draw += 1) counts[drawing.next(logits)]! += 1;
    // Pearson's chi-squared over tokens that are expected at least 5 times; 99.99 % quantile of 39
    // degrees of freedom is 83.
    const statistic = counts.reduce((sum, count, id) => {
      const expected = draws * one.probabilities[id]!;
      return expected < 5 ? sum : sum + (count - expected) ** 2 / expected;
    }, 0);
    expect(statistic).toBeLessThan(83);
  });

  it('keeps the k largest logits and their ties', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: -4, max: 4 }), { minLength: 1, maxLength: 60 }),
        fc.integer({ min: 1, max: 60 }),
        (values, topK) => {
          const ids = sampler({ topK })
            .candidates(Float32Array.from(values))
            .map(({ id }) => id);
          const least = [...values].sort((a, b) => b - a)[Math.min(topK, values.length) - 1]!;
          expect(ids).toEqual(values.flatMap((value, id) => (value >= least ? [id] : [])));
        },
      ),
    );
  });
});

describe('tokens', () => {
  const logits = Float32Array.from(distributions[0]!.logits);
  const draw = (seed: number) => {
    const drawing = sampler({ seed });
    return Array.from({ length: 20 }, () => drawing.next(logits));
  };

  it('are the same for the same seed and others for another', () => {
    expect(draw(3)).toEqual(draw(3));
    expect(draw(3)).not.toEqual(draw(4));
    expect(draw(3)).not.toEqual(draw(3 + 2 ** 32));
  });

  it('are the first of the likeliest without sampling', () => {
    const greedy = sampler({ doSample: false });
    expect(greedy.next(Float32Array.of(1, 5, 5, 2))).toBe(1);
  });

  it('are penalised once they have come', () => {
    const greedy = sampler({ doSample: false, repetitionPenalty: 2 });
    const values = Float32Array.of(3, 4, -1);
    expect([greedy.next(values), greedy.next(values), greedy.next(values)]).toEqual([1, 0, 1]);
  });

  it.each([
    ['NaN', [0, Number.NaN]],
    ['infinity', [0, Infinity]],
    ['nothing finite', [-Infinity, -Infinity]],
  ])('are refused where the logits hold %s', (_, values) => {
    const act = () => sampler({}).next(Float32Array.from(values));
    expect(act).toThrow(expect.objectContaining({ code: 'NON_FINITE' }));
  });
});

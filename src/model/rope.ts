/**
 * @file Frequencies of rotary positions: which angle per position turns each pair of a head.
 *
 * The types of transformers' modeling_rope_utils (5.24): default (Su et al. 2021, arXiv 2104.09864),
 * linear, llama3 (Llama 3.1's) and yarn (Peng et al. 2023, arXiv 2309.00071). Each operation rounds
 * to float32 where transformers computes in float32, so that long positions agree.
 */

/** Rotary positions of heads of one width D; position p turns pair i by p·inverseFrequencies[i]. */
export interface Rope {
  /** [D/2] */
  readonly inverseFrequencies: Float32Array;
  /** Factor of all cosines and sines; 1 except in yarn. */
  readonly attentionScaling: number;
  /** Equal for equal frequencies and scaling; part of kind keys and of the keys of tables. */
  readonly key: string;
}

/** How frequencies follow from a head's width and `rope_theta`. */
export type RopeScaling =
  | { readonly type: 'default' }
  | { readonly type: 'linear'; readonly factor: number }
  | {
      readonly type: 'llama3';
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      readonly originalPositions: number;
    }
  | {
      readonly type: 'yarn';
      readonly factor: number;
      /** Given, or by `yarnAttentionFactor`. */
      readonly attentionFactor: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      readonly originalPositions: number;
      /** Whether the bounds of the ramp are whole numbers. */
      readonly truncate: boolean;
    };

const { fround } = Math;

/**
 * Rotary positions of heads of width D.
 *
 * @param headWidth D, even
 * @param theta base of the frequencies, `rope_theta`
 */
export function makeRope(
  headWidth: number,
  theta: number,
  scaling: RopeScaling = { type: 'default' },
): Rope {
  const { type, ...numbers } = scaling;
  const details = Object.entries(numbers).map(([name, value]) => `,${name}=${value}`);
  return {
    inverseFrequencies: scaled(headWidth, theta, scaling),
    attentionScaling: scaling.type === 'yarn' ? scaling.attentionFactor : 1,
    key: `${type}(D=${headWidth},theta=${theta}${details.join('')})`,
  };
}

/** Yarn's factor of cosines and sines where the configuration names none. */
export function yarnAttentionFactor(
  factor: number,
  mscale?: number,
  mscaleAllDim?: number,
): number {
  const grown = (weight: number): number => (factor <= 1 ? 1 : 0.1 * weight * Math.log(factor) + 1);
  // 0 counts as absent, as in transformers.
  return mscale && mscaleAllDim ? grown(mscale) / grown(mscaleAllDim) : grown(1);
}

function scaled(headWidth: number, theta: number, scaling: RopeScaling): Float32Array {
  switch (scaling.type) {
    case 'default':
      return plain(headWidth, theta);
    case 'linear':
      return plain(headWidth, theta).map((frequency) => frequency / fround(scaling.factor));
    case 'llama3':
      return plain(headWidth, theta).map((frequency) => llama3(frequency, scaling));
    case 'yarn':
      return yarn(headWidth, theta, scaling);
    default:
      return scaling satisfies never;
  }
}

/** theta^(2i/D), [D/2]. */
function periods(headWidth: number, theta: number): Float32Array {
  return Float32Array.from(
    { length: headWidth / 2 },
    (_, i) => theta ** fround((2 * i) / headWidth),
  );
}

/** theta^(-2i/D), [D/2]. */
function plain(headWidth: number, theta: number): Float32Array {
  return periods(headWidth, theta).map((period) => 1 / period);
}

/** Long waves are divided by the factor, short ones kept, those between interpolated. */
function llama3(frequency: number, scaling: Extract<RopeScaling, { type: 'llama3' }>): number {
  const { factor, lowFreqFactor: low, highFreqFactor: high, originalPositions } = scaling;
  const wave = fround(fround(1 / frequency) * fround(2 * Math.PI));
  if (wave < fround(originalPositions / high)) return frequency;
  const divided = fround(frequency / fround(factor));
  if (wave > fround(originalPositions / low)) return divided;
  const waves = fround(fround(1 / wave) * fround(originalPositions));
  const smooth = fround(fround(waves - fround(low)) / fround(high - low));
  const rest = fround(fround(fround(1 - smooth) * frequency) / fround(factor));
  return rest + fround(smooth * frequency);
}

/** Fast pairs keep their frequency, slow ones are divided by the factor, with a ramp between. */
function yarn(
  headWidth: number,
  theta: number,
  scaling: Extract<RopeScaling, { type: 'yarn' }>,
): Float32Array {
  const { factor, betaFast, betaSlow, originalPositions, truncate } = scaling;
  // The pair that turns `rotations` times within the original positions.
  const pairOf = (rotations: number): number =>
    (headWidth * Math.log(originalPositions / (rotations * 2 * Math.PI))) / (2 * Math.log(theta));
  const first = truncate ? Math.floor(pairOf(betaFast)) : pairOf(betaFast);
  const last = truncate ? Math.ceil(pairOf(betaSlow)) : pairOf(betaSlow);
  const low = Math.max(first, 0);
  const end = Math.min(last, headWidth - 1);
  const high = end === low ? end + 0.001 : end;
  return periods(headWidth, theta).map((period, i) => {
    const ramp = fround(fround(i - fround(low)) / fround(high - low));
    const kept = fround(1 - Math.min(1, Math.max(0, ramp)));
    const interpolated = fround(1 / fround(fround(factor) * period));
    const extrapolated = fround(1 / period);
    return fround(interpolated * fround(1 - kept)) + fround(extrapolated * kept);
  });
}

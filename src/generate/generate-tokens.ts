/**
 * @file Continues a prompt token by token, on whatever gives logits.
 */
import { setImmediate } from 'node:timers/promises';
import type { GenerationSettings } from './generation-settings.js';
import { TokenSampler } from './token-sampler.js';

/** Why a sequence ended: an end token; a stop string; as long as asked for; as long as the model's
 * positions; told to. */
export type FinishReason = 'eos' | 'stop' | 'length' | 'context' | 'interrupted';

/** What continues sequences: an InferenceEngine. */
export interface SequenceModel {
  restart(): Promise<void>;
  append(ids: readonly number[]): Promise<Float32Array>;
}

/** When to end. */
export interface TokenLimits {
  /** Most tokens of prompt and continuation together. */
  readonly maxLength: number;
  /** Ends between tokens. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Yields the tokens that follow `prompt`, end tokens excluded; returns why it ended.
 *
 * @param prompt at least one token, at most `maxLength`
 * @throws what the model throws; NON_FINITE
 */
export async function* generateTokens(
  model: SequenceModel,
  prompt: readonly number[],
  settings: GenerationSettings,
  { maxLength, signal }: TokenLimits,
): AsyncGenerator<number, FinishReason, undefined> {
  const sampler = new TokenSampler(settings, prompt);
  const ends = new Set(settings.eosTokenIds);
  await model.restart();
  let next = prompt;
  for (let count = 0; ; count += 1) {
    if (count === settings.maxNewTokens) return 'length';
    if (prompt.length + count >= maxLength) return 'context';
    // A device that computes synchronously would otherwise let no signal through.
    if (signal !== undefined) await setImmediate();
    if (signal?.aborted === true) return 'interrupted';
    const id = sampler.next(await model.append(next));
    if (ends.has(id)) return 'eos';
    yield id;
    next = [id];
  }
}

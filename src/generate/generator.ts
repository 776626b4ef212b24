/**
 * @file Generator: a model folder that continues texts. The weights may live on device, host and NVMe.
 *
 * ```ts
 * const generator = await Generator.load('my-model', { maxLength: 512, deviceMemory: '1GiB' });
 * for await (const { text } of generator.generate('Once upon a time')) process.stdout.write(text);
 * await generator.close();
 * ```
 *
 * Owns model and engine.
 */
import { silentLogger } from '../../core/logger.js';
import type { Link, Tier } from '../../core/types.js';
import type { ResourceOptions } from '../engine/engine-options.js';
import { InferenceEngine } from '../engine/inference-engine.js';
import { generateTokens, type FinishReason } from './generate-tokens.js';
import { checkOverrides, overridden, type GenerationOverrides } from './generation-settings.js';
import { GeneratorFolder, type Prompt } from './generator-folder.js';
import { TextStream } from './text-stream.js';

/** How a generator is made. */
export interface GeneratorOptions extends ResourceOptions {
  /**
   * Most tokens of a prompt and its continuation, for which memory is planned; or a function that
   * decides when the folder is known. More than the model has positions means those.
   */
  readonly maxLength: number | ((folder: GeneratorFolder) => Promise<number>);
  /** Refuse configuration fields that would be ignored with a warning. Default false. */
  readonly strictConfig?: boolean;
}

/** How one text is continued. */
export interface GenerateOptions extends GenerationOverrides {
  /** Texts that end it; they are not part of the completion. */
  readonly stop?: readonly string[];
  /** Ends it between tokens. */
  readonly signal?: AbortSignal;
}

/** A token that came, and the text that is certain by now. */
export interface GeneratedToken {
  /** Undefined for the rest of the text after the last token. */
  readonly id: number | undefined;
  /** Whole characters; often empty. The texts of all tokens are the completion. */
  readonly text: string;
}

/** How a continuation ended. */
export interface GenerationResult {
  readonly completion: string;
  /** Of the completion, those of a stop string included, end tokens excluded. */
  readonly ids: readonly number[];
  readonly finishReason: FinishReason;
}

export class Generator {
  readonly folder: GeneratorFolder;
  /** Most tokens of a prompt and its continuation. */
  readonly maxLength: number;
  readonly #engine: InferenceEngine;

  private constructor(folder: GeneratorFolder, maxLength: number, engine: InferenceEngine) {
    this.folder = folder;
    this.maxLength = maxLength;
    this.#engine = engine;
  }

  /**
   * Opens the model folder `path`, plans memory and loads the weights.
   *
   * @throws what `loadPretrained`, `loadTokenizer` and `InferenceEngine.create` throw; nothing stays
   *   open then
   */
  static async load(path: string, options: GeneratorOptions): Promise<Generator> {
    const { maxLength: wanted, strictConfig = false, ...resources } = options;
    const { logger = silentLogger } = resources;
    const folder = await GeneratorFolder.open(path, { strictConfig, logger });
    const { model } = folder;
    try {
      const asked = typeof wanted === 'number' ? wanted : await wanted(folder);
      const maxLength = Math.min(asked, model.maxPositions);
      const engine = await InferenceEngine.create({ ...resources, model, maxLength });
      return new Generator(folder, maxLength, engine);
    } catch (error) {
      await model.close();
      throw error;
    }
  }

  get budgetBytes(): Readonly<Record<Tier, number>> {
    return this.#engine.budgetBytes;
  }

  /** Highest bytes held in each tier since creation. */
  get peakBytes(): Record<Tier, number> {
    return this.#engine.peakBytes;
  }

  /** Bytes moved on each link since creation, loading included. */
  get bytesMoved(): Record<Link, number> {
    return this.#engine.bytesMoved;
  }

  /**
   * Continues `prompt`; one continuation at a time. Ends early when the iteration is left.
   *
   * @throws what `encode` throws; CONFIG_INVALID for settings that cannot be; what
   *   `InferenceEngine.append` throws; NON_FINITE
   */
  async *generate(
    prompt: Prompt,
    { stop = [], signal, ...overrides }: GenerateOptions = {},
  ): AsyncGenerator<GeneratedToken, GenerationResult, undefined> {
    checkOverrides(overrides);
    const { settings, tokenizer } = this.folder;
    const stream = new TextStream(tokenizer, stop);
    const ids: number[] = [];
    let completion = '';
    const tokens = generateTokens(
      this.#engine,
      await this.folder.encode(prompt),
      overridden(settings, overrides),
      { maxLength: this.maxLength, signal },
    );
    let finishReason: FinishReason | undefined;
    while (finishReason === undefined) {
      const step = await tokens.next();
      if (step.done === true) {
        finishReason = step.value;
        continue;
      }
      ids.push(step.value);
      const text = stream.push(step.value);
      completion += text;
      yield { id: step.value, text };
      if (stream.stopped) finishReason = 'stop';
    }
    const rest = stream.finish();
    completion += rest;
    if (rest !== '') yield { id: undefined, text: rest };
    return { completion, ids, finishReason };
  }

  /** Frees memory, closes files, removes the run's NVMe files. Idempotent. */
  async close(): Promise<void> {
    try {
      await this.#engine.close();
    } finally {
      await this.folder.model.close();
    }
  }
}

/**
 * @file What the files of a model folder say about generation: settings, end tokens, tokenizer, chat
 * template. Owns the model.
 */
import { SpillwayError } from '../../core/errors.js';
import { silentLogger, type Logger } from '../../core/logger.js';
import { loadPretrained, type PretrainedModel } from '../checkpoint/load-pretrained.js';
import { loadChatTemplate } from '../data/chat-template.js';
import type { ChatMessage } from '../data/parse-row.js';
import { loadTokenizer, type TextTokenizer } from '../data/text-tokenizer.js';
import { folderSettings, type GenerationSettings } from './generation-settings.js';

/** A prompt: a text, a conversation that the folder's chat template renders, or token ids. */
export type Prompt = string | readonly ChatMessage[] | { readonly ids: readonly number[] };

export class GeneratorFolder {
  readonly model: PretrainedModel;
  readonly settings: GenerationSettings;
  readonly tokenizer: TextTokenizer;

  private constructor(
    model: PretrainedModel,
    settings: GenerationSettings,
    tokenizer: TextTokenizer,
  ) {
    this.model = model;
    this.settings = settings;
    this.tokenizer = tokenizer;
  }

  /**
   * Opens the folder `path`; close its model.
   *
   * @throws what loading model and tokenizer throws; MODEL_CONFIG_INVALID for generation_config.json.
   *   No file stays open then
   */
  static async open(
    path: string,
    options: { readonly strictConfig?: boolean; readonly logger?: Logger } = {},
  ): Promise<GeneratorFolder> {
    const { strictConfig = false, logger = silentLogger } = options;
    const model = await loadPretrained(path, { strictConfig, logger });
    try {
      const tokenizer = await loadTokenizer(model.folder);
      const settings = await folderSettings(model.folder, model.config, logger);
      const known = settings.eosTokenIds.length > 0 || tokenizer.eosTokenId === undefined;
      const eosTokenIds = known ? settings.eosTokenIds : [tokenizer.eosTokenId];
      return new GeneratorFolder(model, { ...settings, eosTokenIds }, tokenizer);
    } catch (error) {
      await model.close();
      throw error;
    }
  }

  /**
   * The tokens of a prompt.
   *
   * @throws DATA_INVALID when the model has no position left for another token, or messages meet no
   *   chat template; DATA_EMPTY when there are none; TOKENIZER_INVALID
   */
  async encode(prompt: Prompt): Promise<readonly number[]> {
    const ids = (await this.#ids(prompt)).map((id) => {
      if (id !== undefined) return id;
      throw new SpillwayError(
        'TOKENIZER_INVALID',
        'the prompt has a symbol that neither the vocabulary nor an unknown token covers; leave it out',
      );
    });
    if (ids.length === 0) {
      throw new SpillwayError(
        'DATA_EMPTY',
        'the prompt has no tokens; give at least one character',
      );
    }
    const { maxPositions } = this.model;
    if (ids.length < maxPositions) return ids;
    throw new SpillwayError(
      'DATA_INVALID',
      `the prompt has ${ids.length} tokens and the model ${maxPositions} positions; shorten the prompt`,
      { tokens: ids.length, positions: maxPositions },
    );
  }

  async #ids(prompt: Prompt): Promise<readonly (number | undefined)[]> {
    if (typeof prompt === 'string') return this.#encodeText(prompt, true);
    if ('ids' in prompt) return prompt.ids;
    const template = await loadChatTemplate(this.model.folder);
    const text = template.render(prompt, { addGenerationPrompt: true });
    // The template writes the special tokens itself.
    return this.#encodeText(text, false);
  }

  #encodeText(text: string, addSpecialTokens: boolean): readonly (number | undefined)[] {
    try {
      return this.tokenizer.encode(text, { addSpecialTokens });
    } catch (error) {
      const message = `the prompt cannot be tokenized: ${(error as Error).message}`;
      throw new SpillwayError('TOKENIZER_INVALID', message, {}, error);
    }
  }
}

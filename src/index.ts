/**
 * @file Spillway as a library.
 *
 * ```ts
 * import { Engine, languageModelBatch, loadPretrained } from 'spillway';
 * ```
 */
export { SpillwayError, hasCode, type ErrorCode } from '../core/errors.js';
export type { Logger } from '../core/logger.js';
export type { Tier } from '../core/types.js';
export { defineOp } from '../tiers/device/custom-op.js';
export { registerNativeBackend } from '../tiers/device/native/register-backend.js';
export type { NativeBackendOptions } from '../tiers/device/native/native-backend.js';
export { loadPretrained, type PretrainedModel } from './checkpoint/load-pretrained.js';
export { OptimizerStates } from './checkpoint/optimizer-states.js';
export { Engine, type StepOptions } from './engine/engine.js';
export type {
  EngineOptions,
  InitialState,
  OptimizerOptions,
  StepResult,
} from './engine/engine-options.js';
export { InferenceEngine } from './engine/inference-engine.js';
export type { InferenceOptions } from './engine/inference-options.js';
export type { SaveOptions } from './engine/save-parameters.js';
export type {
  Block,
  BlockAux,
  DenseBlock,
  Extension,
  HostTensor,
  MicroBatch,
  Model,
  ParamInit,
  ParamSpec,
  Params,
  RowBlock,
  SequencePlace,
  TiledBlock,
} from './model/block.js';
export type { FinishReason } from './generate/generate-tokens.js';
export type { GenerationSettings } from './generate/generation-settings.js';
export {
  Generator,
  type GenerateOptions,
  type GeneratedToken,
  type GenerationResult,
  type GeneratorOptions,
} from './generate/generator.js';
export type { Prompt } from './generate/generator-folder.js';
export { defineBlock } from './model/define-block.js';
export { defineModel } from './model/define-model.js';
export { languageModelBatch } from './model/language-model-batch.js';
export { modelFromConfig } from './model/model-from-config.js';
export { lrFactor, type LrSchedule } from './optim/lr-schedule.js';

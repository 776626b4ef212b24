/**
 * @file Spillway as a library.
 *
 * ```ts
 * import { Engine, languageModelBatch, loadPretrained } from 'spillway';
 * ```
 */
export { SpillwayError, hasCode, type ErrorCode, type ErrorFacts } from '../core/errors.js';
export type { Logger } from '../core/logger.js';
export type { ComputeDtype, Lane, Link, Tier } from '../core/types.js';
export {
  defineOp,
  type CoarseOp,
  type ForwardResult,
  type InputGradient,
  type OpDefinition,
} from '../tiers/device/custom-op.js';
export { registerNativeBackend } from '../tiers/device/native/register-backend.js';
export type { NativeBackendOptions } from '../tiers/device/native/native-backend.js';
export type { JsonObject } from './checkpoint/json-object.js';
export {
  loadPretrained,
  type LoadOptions,
  type PretrainedModel,
} from './checkpoint/load-pretrained.js';
export { OptimizerStates } from './checkpoint/optimizer-states.js';
export { Engine, type StepOptions } from './engine/engine.js';
export type {
  EngineOptions,
  ExecutionOptions,
  InitialState,
  OptimizerOptions,
  ResourceOptions,
  StepResult,
} from './engine/engine-options.js';
export { InferenceEngine } from './engine/inference-engine.js';
export type { InferenceOptions } from './engine/inference-options.js';
export type { Throttles } from './engine/link-turns.js';
export type { SaveOptions } from './engine/save-parameters.js';
export type { HostWork, Span } from './engine/step-executor.js';
export type {
  Block,
  BlockAux,
  BlockBase,
  DenseBlock,
  Extension,
  HostTensor,
  MicroBatch,
  Model,
  ParamInit,
  ParamName,
  ParamSpec,
  Params,
  RowBlock,
  RowGather,
  SequencePlace,
  TensorSource,
  Tile,
  TiledBlock,
} from './model/block.js';
export type {
  Action,
  Compute,
  Operation,
  OperationId,
  Output,
  Phase,
  Source,
  StepPlan,
  Transfer,
  Update,
} from './plan/step-plan.js';
export type { FinishReason } from './generate/generate-tokens.js';
export type { GenerationOverrides, GenerationSettings } from './generate/generation-settings.js';
export {
  Generator,
  type GenerateOptions,
  type GeneratedToken,
  type GenerationResult,
  type GeneratorOptions,
} from './generate/generator.js';
export type { GeneratorFolder, Prompt } from './generate/generator-folder.js';
export type { ChatMessage } from './data/parse-row.js';
export type {
  DecodeOptions,
  EncodedText,
  EncodeOptions,
  TextTokenizer,
} from './data/text-tokenizer.js';
export type { ConfigOptions } from './model/config-rules.js';
export type { LlamaFamilyName } from './model/llama-families.js';
export { defineBlock, type BlockDefinition, type ParamDefinition } from './model/define-block.js';
export { defineModel, type ModelDescription } from './model/define-model.js';
export { languageModelBatch, type TokenBatch } from './model/language-model-batch.js';
export {
  modelFromConfig,
  type ModelDefinition,
  type ModelName,
} from './model/model-from-config.js';
export {
  lrFactor,
  type LrSchedule,
  type LrScheduleType,
  type WsdShape,
} from './optim/lr-schedule.js';
export type { InferencePlan } from './plan/inference-plan.js';
export type { MemoryPlan, OffloadDevice } from './plan/placement.js';

/**
 * @file How a configuration wants rows to become tokens for a model: the same in training and
 * evaluation.
 */
import type { PretrainedModel } from '../checkpoint/load-pretrained.js';
import type { TrainConfig } from '../config/train-config.js';
import type { DatasetOptions } from '../data/load-dataset.js';

/** Everything but files and who is told of them. @param maxLength tokens per row */
export function dataOptionsOf(
  config: TrainConfig,
  model: Pick<PretrainedModel, 'folder' | 'vocabSize'>,
  maxLength: number,
): Omit<DatasetOptions, 'files' | 'split' | 'logger'> {
  return {
    textField: config.datasetTextField,
    completionOnlyLoss: config.completionOnlyLoss,
    assistantOnlyLoss: config.assistantOnlyLoss,
    chatTemplatePath: config.chatTemplatePath,
    maxLength,
    packing: config.packing,
    workers: config.datasetNumProc,
    tokenCache: config.tokenCache,
    folder: model.folder,
    vocabSize: model.vocabSize,
  };
}

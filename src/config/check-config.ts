/**
 * @file Rules between keys: values that are each allowed and contradict one another, or that only
 * one value of is possible here.
 *
 * Rules of learning-rate schedules are in src/optim/resolve-lr-schedule.ts, those of budgets in
 * src/plan.
 */
import { SpillwayError } from '../../core/errors.js';
import type { ConfigKeyName } from './schema.js';
import type { ConfigValues } from './train-config.js';

/**
 * Refuses contradictions.
 *
 * @throws CONFIG_INVALID naming the keys
 */
export function checkConfig(values: ConfigValues): void {
  checkImpossible(values);
  checkTiers(values);
  checkEvaluation(values);
  checkBestModel(values);
}

function checkImpossible(values: ConfigValues): void {
  if (values.fp16 === true) {
    throw invalid('fp16 cannot be true, for there is no loss scaling; use bf16: true', ['fp16']);
  }
  if (values.gradient_checkpointing === false) {
    throw invalid(
      'gradient_checkpointing cannot be false, for blocks leave memory between their passes; leave it out',
      ['gradient_checkpointing'],
    );
  }
  if (values.greater_is_better === true) {
    throw invalid(
      'greater_is_better cannot be true, for metric_for_best_model is a loss; leave it out',
      ['greater_is_better', 'metric_for_best_model'],
    );
  }
}

/** Known before data are read, which may take hours. */
function checkTiers(values: ConfigValues): void {
  for (const key of ['offload_param.device', 'offload_optimizer.device'] as const) {
    if (values[key] === 'nvme' && values.nvme_path === undefined) {
      throw invalid(`${key} is nvme; give nvme_path too`, [key, 'nvme_path']);
    }
  }
}

function checkEvaluation(values: ConfigValues): void {
  const { eval_files: files, eval_split: split, eval_strategy: strategy } = values;
  if (files !== undefined && split !== undefined) {
    throw invalid('eval_files and eval_split are both given; keep one', [
      'eval_files',
      'eval_split',
    ]);
  }
  if (strategy === 'no') {
    if (values.load_best_model_at_end === true) throw needsStrategy('load_best_model_at_end: true');
    if (values.save_strategy === 'best') throw needsStrategy('save_strategy: best');
  }
  if (files !== undefined || split !== undefined) return;
  const wants =
    strategy !== 'no' ? 'eval_strategy' : values.eval_on_start === true ? 'eval_on_start' : '';
  if (wants !== '') {
    throw invalid(
      `${wants}: ${String(values[wants])} has no rows to evaluate; give eval_files or eval_split`,
      [wants, 'eval_files', 'eval_split'],
    );
  }
}

/** transformers' rule: every evaluation that may turn out the best must have been saved. */
function checkBestModel(values: ConfigValues): void {
  const { eval_strategy: evalAt, save_strategy: saveAt } = values;
  if (values.load_best_model_at_end !== true || saveAt === 'best') return;
  if (evalAt !== saveAt) {
    throw invalid(
      `load_best_model_at_end needs the best model saved, but save_strategy is ${saveAt} and eval_strategy ${evalAt}; make them equal, or save_strategy: best`,
      ['load_best_model_at_end', 'save_strategy', 'eval_strategy'],
    );
  }
  const saveSteps = values.save_steps!;
  const evalSteps = values.eval_steps ?? values.logging_steps!;
  if (evalAt === 'steps' && !isMultiple(saveSteps, evalSteps)) {
    const evalKey = values.eval_steps === undefined ? 'logging_steps' : 'eval_steps';
    throw invalid(
      `load_best_model_at_end needs save_steps to be a multiple of eval_steps, but ${saveSteps} is none of ${evalSteps} (${evalKey}); change one, or save_strategy: best`,
      ['load_best_model_at_end', 'save_steps', evalKey],
    );
  }
}

/** Shares of all steps are compared in millionths; a share and a count cannot be compared. */
const SHARE_GRAIN = 1e6;

function isMultiple(saveSteps: number, evalSteps: number): boolean {
  if (saveSteps < 1 !== evalSteps < 1) return false;
  if (saveSteps >= 1) return saveSteps % evalSteps === 0;
  const grain = Math.round(evalSteps * SHARE_GRAIN);
  return grain > 0 && Math.round(saveSteps * SHARE_GRAIN) % grain === 0;
}

function needsStrategy(setting: string): SpillwayError {
  return invalid(`${setting} needs evaluations; set eval_strategy to steps or epoch`, [
    setting.split(':')[0] as ConfigKeyName,
    'eval_strategy',
  ]);
}

function invalid(message: string, keys: readonly ConfigKeyName[]): SpillwayError {
  return new SpillwayError('CONFIG_INVALID', message, { keys });
}

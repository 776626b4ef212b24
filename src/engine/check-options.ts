/**
 * @file Refuses options of `Engine.create` that no engine can be built from, before anything is.
 *
 * The configuration's schema holds the same rules for its keys; programs come here without it.
 */
import { basename } from 'node:path';
import { SpillwayError } from '../../core/errors.js';
import type { EngineOptions, ResourceOptions } from './engine-options.js';

const isCount = (value: number): boolean => Number.isSafeInteger(value) && value >= 1;
const isAmount = (value: number): boolean => Number.isFinite(value) && value >= 0;
const isShare = (value: number): boolean => value >= 0 && value < 1;
const isOneOf =
  (...words: readonly string[]) =>
  (value: string): boolean =>
    words.includes(value);
const isOffload = isOneOf('none', 'cpu', 'nvme', 'auto');

/** Whether `learningRate` can be used; a step may name its own. */
export function checkLearningRate(learningRate: number): void {
  check('learningRate', learningRate, isAmount, 'a finite number, at least 0');
}

/**
 * Checks every option that is a number or a word.
 *
 * @throws CONFIG_INVALID naming the option, CHECKPOINT_MISMATCH for states of another dtype
 */
export function checkOptions(options: Omit<EngineOptions, 'model'>): void {
  const { optimizer = {} } = options;
  checkResourceOptions(options);
  check('gradientAccumulationSteps', options.gradientAccumulationSteps, isCount, COUNT);
  check('optimizerWorkers', options.optimizerWorkers, isCount, COUNT);
  check('offloadOptimizer', options.offloadOptimizer, isOffload, OFFLOAD);
  const isOrder = isOneOf('auto', 'vertical', 'horizontal');
  check('microBatchOrder', options.microBatchOrder, isOrder, 'auto, vertical or horizontal');
  checkInitialState(options);
  for (const [link, rate] of Object.entries(options.execution?.throttles ?? {})) {
    check(`throttles.${link}`, rate, (value) => value > 0, 'bytes per second, more than 0');
  }
  if (optimizer.learningRate !== undefined) checkLearningRate(optimizer.learningRate);
  check('beta1', optimizer.beta1, isShare, 'a number from 0 to below 1');
  check('beta2', optimizer.beta2, isShare, 'a number from 0 to below 1');
  check('epsilon', optimizer.epsilon, isAmount, 'a finite number, at least 0');
  check('weightDecay', optimizer.weightDecay, isAmount, 'a finite number, at least 0');
  check('maxGradNorm', optimizer.maxGradNorm, (value) => value >= 0, 'a number, at least 0');
}

/**
 * The same for the options of every kind of engine.
 *
 * @throws CONFIG_INVALID naming the option
 */
export function checkResourceOptions(options: ResourceOptions): void {
  const { nvmePath = [] } = options;
  check('dtype', options.dtype, isOneOf('float32', 'bfloat16'), 'float32 or bfloat16');
  check('offloadParam', options.offloadParam, isOffload, OFFLOAD);
  check('seed', options.seed, Number.isSafeInteger, 'a whole number');
  // The run's folder is removed at the end: it must be one of its own, right below the path.
  check('runId', options.runId, isPlainName, 'a plain folder name');
  for (const path of typeof nvmePath === 'string' ? [nvmePath] : nvmePath) {
    check('nvmePath', path, (text) => text !== '', 'a folder, or leave it out');
  }
}

function checkInitialState({
  initialState,
  dtype = 'float32',
}: Pick<EngineOptions, 'initialState' | 'dtype'>): void {
  if (initialState === undefined) return;
  const isStep = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;
  check('initialState.step', initialState.step, isStep, 'a whole number, at least 0');
  if (initialState.dtype === dtype) return;
  throw new SpillwayError(
    'CHECKPOINT_MISMATCH',
    `the states are of a ${initialState.dtype} run, this one is ${dtype}; go on with dtype ${initialState.dtype}`,
    { stored: initialState.dtype, dtype },
  );
}

const COUNT = 'a whole number, at least 1';
const OFFLOAD = 'none, cpu, nvme or auto';

function isPlainName(name: string): boolean {
  return name !== '' && name !== '.' && name !== '..' && name === basename(name);
}

function check<T extends string | number>(
  name: string,
  value: T | undefined,
  isValid: (value: T) => boolean,
  wanted: string,
): void {
  if (value === undefined || isValid(value)) return;
  const shown = typeof value === 'string' ? `"${value}"` : String(value);
  throw new SpillwayError('CONFIG_INVALID', `${name} is ${shown}; give ${wanted}`, {
    option: name,
  });
}

/**
 * @file After which steps a run logs, evaluates and saves: the rules of Hugging Face's Trainer.
 *
 * Steps are one-based. The last step logs, evaluates and saves too, whatever the intervals, and ends
 * its epoch, even where that is not whole. Pure functions.
 */
import type { TrainConfig } from '../config/train-config.js';

/** Keys that decide. */
export type CadenceConfig = Pick<
  TrainConfig,
  'loggingSteps' | 'loggingFirstStep' | 'evalStrategy' | 'evalSteps' | 'saveStrategy' | 'saveSteps'
>;

export class Cadence {
  /** Whole steps between evaluations, and between checkpoints. */
  readonly evalSteps: number;
  readonly saveSteps: number;
  readonly #config: CadenceConfig;
  readonly #totalSteps: number;
  readonly #stepsPerEpoch: number;

  constructor(config: CadenceConfig, totalSteps: number, stepsPerEpoch: number) {
    this.#config = config;
    this.#totalSteps = totalSteps;
    this.#stepsPerEpoch = stepsPerEpoch;
    const whole = (steps: number): number => (steps < 1 ? Math.ceil(totalSteps * steps) : steps);
    this.evalSteps = whole(config.evalSteps ?? config.loggingSteps);
    this.saveSteps = whole(config.saveSteps);
  }

  logsAt(step: number): boolean {
    const { loggingSteps, loggingFirstStep } = this.#config;
    return (
      step % loggingSteps === 0 || step === this.#totalSteps || (step === 1 && loggingFirstStep)
    );
  }

  evaluatesAt(step: number): boolean {
    return this.#happensAt(step, this.#config.evalStrategy, this.evalSteps);
  }

  /** @param isBest whether an evaluation of this step was the best so far */
  savesAt(step: number, isBest: boolean): boolean {
    const { saveStrategy } = this.#config;
    if (saveStrategy === 'best') return isBest;
    return this.#happensAt(step, saveStrategy, this.saveSteps);
  }

  #happensAt(step: number, strategy: 'no' | 'steps' | 'epoch', interval: number): boolean {
    if (strategy === 'no') return false;
    const every = strategy === 'steps' ? interval : this.#stepsPerEpoch;
    return step % every === 0 || step === this.#totalSteps;
  }
}

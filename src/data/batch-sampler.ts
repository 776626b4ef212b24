/**
 * @file Which rows each optimizer step trains on.
 *
 * Every epoch visits each row once, in an order that (seed, epoch) alone decides, so that a position
 * is two numbers and resuming replays nothing. As in Hugging Face's Trainer the last micro-batch of
 * an epoch may have fewer rows and its last accumulated batch fewer micro-batches; no batch spans
 * epochs.
 */
import { Random, shuffle } from './random.js';

/** How far training has come in the data; plain data for checkpoints. */
export interface DataPosition {
  /** Zero-based. */
  readonly epoch: number;
  /** Accumulated batches already drawn from this epoch. */
  readonly index: number;
}

/** The rows of one optimizer step. */
export interface AccumulatedBatch {
  /** Where it lies. */
  readonly position: DataPosition;
  /** Row numbers of each micro-batch, 1 to G of them with 1 to B rows each. */
  readonly microBatches: readonly Uint32Array[];
}

/** What a sampler is made from. */
export interface SamplerOptions {
  /** Rows of the data set, at least 1. */
  readonly rowCount: number;
  /** B, rows per micro-batch. */
  readonly batchSize: number;
  /** G, micro-batches per step. */
  readonly accumulationSteps: number;
  /** Unsigned 32-bit. */
  readonly seed: number;
  /** May be a fraction. */
  readonly epochs: number;
  /** Steps; overrides `epochs` unless -1. */
  readonly maxSteps: number;
}

/** Draws accumulated batches in order. */
export class BatchSampler {
  /** ceil(ceil(rows / B) / G). */
  readonly stepsPerEpoch: number;
  /** Steps of the whole run. */
  readonly totalSteps: number;
  readonly #options: SamplerOptions;
  readonly #order: Uint32Array;
  #orderEpoch = -1;
  #position: DataPosition = { epoch: 0, index: 0 };

  constructor(options: SamplerOptions) {
    const { rowCount, batchSize, accumulationSteps, epochs, maxSteps } = options;
    this.#options = options;
    this.#order = new Uint32Array(rowCount);
    this.stepsPerEpoch = Math.ceil(Math.ceil(rowCount / batchSize) / accumulationSteps);
    this.totalSteps = maxSteps > 0 ? maxSteps : Math.ceil(epochs * this.stepsPerEpoch);
  }

  /** Position of the batch that `next` gives. */
  get position(): DataPosition {
    return this.#position;
  }

  /** Steps drawn before `position`. */
  get stepsDrawn(): number {
    return this.#position.epoch * this.stepsPerEpoch + this.#position.index;
  }

  /** Epochs done after `stepsDrawn` steps, as a fraction: the `epoch` of metrics. */
  get epochsDrawn(): number {
    return this.stepsDrawn / this.stepsPerEpoch;
  }

  /** Continues at `position`, as taken from a sampler with the same options. */
  seek(position: DataPosition): void {
    const { epoch, index } = position;
    const valid = Number.isSafeInteger(epoch) && Number.isSafeInteger(index);
    if (!valid || epoch < 0 || index < 0 || index >= this.stepsPerEpoch) {
      throw new RangeError(`no data position epoch ${epoch}, index ${index}`);
    }
    this.#position = { epoch, index };
  }

  /** The rows of the next step, or undefined after the last one. */
  next(): AccumulatedBatch | undefined {
    if (this.stepsDrawn >= this.totalSteps) return undefined;
    const position = this.#position;
    const { batchSize, accumulationSteps, rowCount } = this.#options;
    const order = this.#orderOf(position.epoch);
    const first = position.index * batchSize * accumulationSteps;
    const end = Math.min(first + batchSize * accumulationSteps, rowCount);
    const microBatches: Uint32Array[] = [];
    for (let start = first; start < end; start += batchSize) {
      microBatches.push(order.slice(start, Math.min(start + batchSize, end)));
    }
    const index = position.index + 1;
    this.#position =
      index < this.stepsPerEpoch ? { ...position, index } : { epoch: position.epoch + 1, index: 0 };
    return { position, microBatches };
  }

  #orderOf(epoch: number): Uint32Array {
    if (this.#orderEpoch !== epoch) {
      for (let row = 0; row < this.#order.length; row += 1) this.#order[row] = row;
      shuffle(this.#order, Random.keyed(this.#options.seed, epoch));
      this.#orderEpoch = epoch;
    }
    return this.#order;
  }
}

/**
 * @file AdamW's states of a checkpoint by parameter name, read by ranges of elements.
 *
 * `optimizer.safetensors`, or its shards, hold `<parameter>.exp_avg` and `.exp_avg_sq` in float32
 * and, of bfloat16 runs, `.master_lo`: the low halves of the float32 master weights, as bits. Owns
 * the files' descriptors until `close()`.
 */
import { SpillwayError, assert } from '../../core/errors.js';
import type { ComputeDtype } from '../../core/types.js';
import type { Block, ParamName, ParamSpec } from '../model/block.js';
import { quoteName } from './file-errors.js';
import type { SafetensorsDtype } from './safetensors-header.js';
import { openTensorFiles, type StoredTensor, type TensorFiles } from './tensor-files.js';

/** States beside weights and gradients, with the dtype in which they are stored. */
const STORED_DTYPES = {
  exp_avg: 'F32',
  exp_avg_sq: 'F32',
  master_lo: 'U16',
} as const satisfies Record<string, SafetensorsDtype>;

type StateKey = keyof typeof STORED_DTYPES;

/** Checked states; an `InitialState` of the engine. */
export class OptimizerStates {
  readonly step: number;
  readonly dtype: ComputeDtype;
  readonly #files: TensorFiles;

  private constructor(step: number, dtype: ComputeDtype, files: TensorFiles) {
    this.step = step;
    this.dtype = dtype;
    this.#files = files;
  }

  /**
   * Opens the states in `folder` and compares names, shapes and dtypes with the parameters of
   * `blocks` that train.
   *
   * @param step optimizer steps taken when they were saved
   * @param dtype of the run
   * @throws CHECKPOINT_MISMATCH naming the tensor; MODEL_NOT_FOUND when there are no states;
   *   CHECKPOINT_CORRUPT, IO_ERROR; no file stays open then
   */
  static async open(
    folder: string,
    blocks: readonly Block[],
    step: number,
    dtype: ComputeDtype,
  ): Promise<OptimizerStates> {
    const files = await openTensorFiles(folder, 'optimizer');
    try {
      checkStates(folder, files.tensors, blocks, dtype);
    } catch (error) {
      await files.close();
      throw error;
    }
    return new OptimizerStates(step, dtype, files);
  }

  /** Fills `target` with elements `offset … offset + target.length` of a moment. */
  async readMoment(
    parameter: ParamName,
    state: 'exp_avg' | 'exp_avg_sq',
    offset: number,
    target: Float32Array,
  ): Promise<void> {
    const { file, entry } = this.#stored(parameter, state);
    await file.readElements(entry, offset, target);
  }

  /** The same for the low halves of the master weights, as bits. */
  async readMasterLow(parameter: ParamName, offset: number, target: Uint16Array): Promise<void> {
    const { file, entry } = this.#stored(parameter, 'master_lo');
    await file.readBits(entry, offset, target);
  }

  /** Closes the files after the reads in flight. Idempotent. */
  close(): Promise<void> {
    return this.#files.close();
  }

  #stored(parameter: ParamName, state: StateKey): StoredTensor {
    const stored = this.#files.tensors.get(`${parameter}.${state}`);
    assert(stored !== undefined, 'the state belongs to the model', { parameter, state });
    return stored;
  }
}

function checkStates(
  folder: string,
  tensors: ReadonlyMap<string, StoredTensor>,
  blocks: readonly Block[],
  dtype: ComputeDtype,
): void {
  const states: readonly StateKey[] =
    dtype === 'bfloat16' ? ['exp_avg', 'exp_avg_sq', 'master_lo'] : ['exp_avg', 'exp_avg_sq'];
  const expected = new Set<string>();
  for (const spec of blocks.flatMap((block) => block.owns)) {
    if (spec.trainable === false) continue;
    for (const state of states) {
      const name = `${spec.name}.${state}`;
      expected.add(name);
      checkState(folder, name, tensors.get(name), spec, STORED_DTYPES[state]);
    }
  }
  const other = [...tensors.keys()].find((name) => !expected.has(name));
  if (other !== undefined) {
    throw mismatch(folder, `hold ${quoteName(other)}, which a ${dtype} run of this model has not`);
  }
}

function checkState(
  folder: string,
  name: string,
  stored: StoredTensor | undefined,
  spec: ParamSpec,
  dtype: SafetensorsDtype,
): void {
  if (stored === undefined) throw mismatch(folder, `lack ${quoteName(name)}`);
  const { entry } = stored;
  if (entry.dtype !== dtype || entry.shape.join() !== spec.shape.join()) {
    const is = `${entry.dtype} [${entry.shape.join(', ')}]`;
    throw mismatch(
      folder,
      `hold ${quoteName(name)} as ${is} instead of ${dtype} [${spec.shape.join(', ')}]`,
    );
  }
}

function mismatch(folder: string, fact: string): SpillwayError {
  return new SpillwayError(
    'CHECKPOINT_MISMATCH',
    `the optimizer states in ${folder} ${fact}; go on with the model and dtype of that run`,
  );
}

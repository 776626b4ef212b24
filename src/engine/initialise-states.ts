/**
 * @file Fills all training state before the first step: parameters from their sources, moments from
 * an earlier run or with zeros, gradients with zeros.
 *
 * Everything streams in pieces of one chunk, whatever the size of a tensor: one is read while the
 * one before is written, and zeros are written beside them. Every region on NVMe is written whole,
 * so that later writes meet allocated blocks.
 */
import { SpillwayError, assert } from '../../core/errors.js';
import { settleAll } from '../../core/settle-all.js';
import { CHUNK_ELEMENTS, elementBytes, type StateName } from '../../core/types.js';
import { kernels } from '../../tiers/native/binding.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import type { Model, ParamName, ParamSpec, TensorSource } from '../model/block.js';
import type { ParameterGroup, Shard } from '../plan/parameter-layout.js';
import { stateType, statesOf } from '../plan/placement.js';
import type { InitialState } from './engine-options.js';
import type { ParameterStore } from './parameter-store.js';
import { PiecesBehind, type PieceBuffers } from './pieces-behind.js';
import { zeroState } from './zero-state.js';

/**
 * Fills `store`.
 *
 * With `initial`, a bfloat16 run's weights are the model's, which are bfloat16 values then, and the
 * low halves of the master are those of `initial`: the master comes back bit by bit.
 *
 * @throws CHECKPOINT_MISMATCH when a source has another shape; what sources throw
 */
export async function initialiseStates(
  store: ParameterStore,
  tiers: TierManager,
  model: Model,
  initial: InitialState | undefined,
): Promise<void> {
  const failure = new AbortController();
  const guarded = async (body: () => Promise<void>): Promise<void> => {
    try {
      await body();
    } catch (error) {
      failure.abort();
      throw error;
    }
  };
  const { signal } = failure;
  const pieces = new PiecesBehind();
  const fillValues = async (): Promise<void> => {
    for (const group of store.layout.groups) {
      const sources = new Map<ParamName, TensorSource>();
      for (const { spec } of group.params) sources.set(spec.name, await sourceOf(model, spec));
      const filler = new GroupFiller({ store, tiers, group, sources, initial, pieces, signal });
      for (const shard of group.shards) await filler.fill(shard);
    }
  };
  // Host memory that is touched for the first time holds up this thread, but not the disk, which
  // has zeros to write.
  await settleAll([
    guarded(() => pieces.use(fillValues)),
    guarded(() => fillZeros(store, tiers, initial, signal)),
  ]);
}

/** Zeros for gradients and, in a run that begins, for moments. */
async function fillZeros(
  store: ParameterStore,
  tiers: TierManager,
  initial: InitialState | undefined,
  signal: AbortSignal,
): Promise<void> {
  for (const group of store.layout.groups) {
    for (const state of statesOf(group, store.dtype)) {
      const isMoment = state === 'exp_avg' || state === 'exp_avg_sq';
      if (state !== 'grad' && !(isMoment && initial === undefined)) continue;
      for (const shard of group.shards) {
        if (signal.aborted) return;
        await zeroState(store.location(shard, state), tiers);
      }
    }
  }
}

async function sourceOf(model: Model, spec: ParamSpec): Promise<TensorSource> {
  const source = await model.source(spec);
  if (source.shape.join() === spec.shape.join()) return source;
  throw new SpillwayError('CHECKPOINT_MISMATCH', `the source of ${spec.name} has another shape`, {
    expected: spec.shape.map(String),
    actual: source.shape.map(String),
  });
}

/** Elements `start … start + length` of a shard. */
interface Piece {
  readonly shard: Shard;
  readonly start: number;
  readonly length: number;
}

interface FillerParts {
  readonly store: ParameterStore;
  readonly tiers: TierManager;
  readonly group: ParameterGroup;
  readonly sources: ReadonlyMap<ParamName, TensorSource>;
  readonly initial: InitialState | undefined;
  readonly pieces: PiecesBehind;
  /** Aborted when something else failed. */
  readonly signal: AbortSignal;
}

class GroupFiller {
  readonly #parts: FillerParts;
  readonly #states: readonly StateName[];

  constructor(parts: FillerParts) {
    this.#parts = parts;
    this.#states = statesOf(parts.group, parts.store.dtype);
  }

  async fill(shard: Shard): Promise<void> {
    const { initial, pieces, signal } = this.#parts;
    for (let start = 0; start < shard.length && !signal.aborted; start += CHUNK_ELEMENTS) {
      const piece = { shard, start, length: Math.min(CHUNK_ELEMENTS, shard.length - start) };
      const buffers = await pieces.next();
      const values = await this.#readWeights(piece, buffers);
      if (initial !== undefined) await this.#readMoments(piece, initial, buffers, values);
      buffers.release([...values].map(([state, some]) => this.#write(piece, state, some)));
    }
  }

  async #readMoments(
    piece: Piece,
    initial: InitialState,
    { moments }: PieceBuffers,
    values: Map<StateName, Float32Array | Uint16Array>,
  ): Promise<void> {
    for (const state of this.#states) {
      if (state !== 'exp_avg' && state !== 'exp_avg_sq') continue;
      const moment = moments[state].subarray(0, piece.length);
      await this.#visit(piece, (name, offset, from, to) =>
        initial.readMoment(name, state, offset, moment.subarray(from, to)),
      );
      values.set(state, moment);
    }
  }

  // The staging pool's own buffers would wait for themselves inside `write`, so pieces are read
  // into memory of their own; this happens only while the engine is created.
  async #readWeights(
    piece: Piece,
    buffers: PieceBuffers,
  ): Promise<Map<StateName, Float32Array | Uint16Array>> {
    const { group, sources, store } = this.#parts;
    const master = buffers.master.subarray(0, piece.length);
    await this.#visit(piece, (name, offset, from, to) => {
      const source = sources.get(name);
      assert(source !== undefined, 'every parameter has a source');
      return source.read(offset, master.subarray(from, to));
    });
    if (store.dtype === 'float32') return new Map([['param', master]]);
    const param = buffers.param.subarray(0, piece.length);
    const values = new Map<StateName, Float32Array | Uint16Array>([['param', param]]);
    if (!group.trainable) {
      kernels().f32ToBf16(master, param);
      return values;
    }
    const masterLow = buffers.masterLow.subarray(0, piece.length);
    await this.#splitMaster(piece, master, param, masterLow);
    // In inference the weights are rounded as in training, and the rest of the master is dropped.
    if (this.#states.includes('master_lo')) values.set('master_lo', masterLow);
    return values;
  }

  async #splitMaster(
    piece: Piece,
    master: Float32Array,
    param: Uint16Array,
    masterLow: Uint16Array,
  ): Promise<void> {
    const { initial } = this.#parts;
    if (initial === undefined) {
      kernels().splitMaster(master, param, masterLow);
      return;
    }
    kernels().f32ToBf16(master, param);
    await this.#visit(piece, (name, offset, from, to) =>
      initial.readMasterLow(name, offset, masterLow.subarray(from, to)),
    );
  }

  /** Calls `read` for each parameter in `piece`: its elements from `offset`, at `from … to`. */
  async #visit(
    { shard, start, length }: Piece,
    read: (name: ParamName, offset: number, from: number, to: number) => Promise<void> | void,
  ): Promise<void> {
    const first = shard.start + start;
    for (const { spec, offset, length: paramLength } of this.#parts.group.params) {
      const from = Math.max(first, offset);
      const to = Math.min(first + length, offset + paramLength);
      if (from < to) await read(spec.name, from - offset, from - first, to - first);
    }
  }

  async #write(
    { shard, start, length }: Piece,
    state: StateName,
    values: Float32Array | Uint16Array,
  ): Promise<void> {
    const { store, tiers } = this.#parts;
    const type = stateType(state, store.dtype);
    const bytesPer = elementBytes(type);
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    await tiers.write(store.location(shard, state), type, start, length, (offset, target) => {
      target.set(bytes.subarray(offset * bytesPer, offset * bytesPer + target.byteLength));
    });
  }
}

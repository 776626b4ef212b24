/**
 * @file Fills all training state before the first step: parameters from their sources, moments from
 * an earlier run or with zeros, gradients with zeros.
 *
 * Everything streams in pieces of one chunk, whatever the size of a tensor. Every region on NVMe is
 * written whole, so that later writes meet allocated blocks.
 */
import { SpillwayError, assert } from '../../core/errors.js';
import { CHUNK_ELEMENTS, elementBytes, type StateName } from '../../core/types.js';
import { kernels } from '../../tiers/native/binding.js';
import type { TierManager } from '../../tiers/tier-manager.js';
import type { Model, ParamName, ParamSpec, TensorSource } from '../model/block.js';
import type { ParameterGroup, Shard } from '../plan/parameter-layout.js';
import { stateType, statesOf } from '../plan/placement.js';
import type { InitialState } from './engine-options.js';
import type { ParameterStore } from './parameter-store.js';

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
  for (const group of store.layout.groups) {
    const sources = new Map<ParamName, TensorSource>();
    for (const { spec } of group.params) sources.set(spec.name, await sourceOf(model, spec));
    const filler = new GroupFiller(store, tiers, group, sources, initial);
    for (const shard of group.shards) await filler.fill(shard);
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

class GroupFiller {
  readonly #store: ParameterStore;
  readonly #tiers: TierManager;
  readonly #group: ParameterGroup;
  readonly #sources: ReadonlyMap<ParamName, TensorSource>;
  readonly #initial: InitialState | undefined;

  constructor(
    store: ParameterStore,
    tiers: TierManager,
    group: ParameterGroup,
    sources: ReadonlyMap<ParamName, TensorSource>,
    initial: InitialState | undefined,
  ) {
    this.#store = store;
    this.#tiers = tiers;
    this.#group = group;
    this.#sources = sources;
    this.#initial = initial;
  }

  async fill(shard: Shard): Promise<void> {
    const states = statesOf(this.#group, this.#store.dtype);
    for (let start = 0; start < shard.length; start += CHUNK_ELEMENTS) {
      const piece = { shard, start, length: Math.min(CHUNK_ELEMENTS, shard.length - start) };
      await this.#fillWeights(piece);
      if (this.#initial !== undefined) await this.#fillMoments(piece, states, this.#initial);
    }
    for (const state of states) {
      const isMoment = state === 'exp_avg' || state === 'exp_avg_sq';
      if (state === 'grad' || (isMoment && this.#initial === undefined)) {
        await this.#write({ shard, start: 0, length: shard.length }, state, undefined);
      }
    }
  }

  async #fillMoments(
    piece: Piece,
    states: readonly StateName[],
    initial: InitialState,
  ): Promise<void> {
    for (const state of states) {
      if (state !== 'exp_avg' && state !== 'exp_avg_sq') continue;
      const values = new Float32Array(piece.length);
      await this.#visit(piece, (name, offset, from, to) =>
        initial.readMoment(name, state, offset, values.subarray(from, to)),
      );
      await this.#write(piece, state, values);
    }
  }

  // The staging pool's own buffers would wait for themselves inside `write`, so pieces are read
  // into memory of their own; this happens only while the engine is created.
  async #fillWeights(piece: Piece): Promise<void> {
    const { length } = piece;
    const master = new Float32Array(length);
    await this.#visit(piece, (name, offset, from, to) => {
      const source = this.#sources.get(name);
      assert(source !== undefined, 'every parameter has a source');
      return source.read(offset, master.subarray(from, to));
    });
    if (this.#store.dtype === 'float32') return this.#write(piece, 'param', master);
    const param = new Uint16Array(length);
    if (this.#group.trainable) {
      const masterLow = new Uint16Array(length);
      await this.#splitMaster(piece, master, param, masterLow);
      // In inference the weights are rounded as in training, and the rest of the master is dropped.
      const states = statesOf(this.#group, this.#store.dtype);
      if (states.includes('master_lo')) await this.#write(piece, 'master_lo', masterLow);
    } else {
      kernels().f32ToBf16(master, param);
    }
    await this.#write(piece, 'param', param);
  }

  async #splitMaster(
    piece: Piece,
    master: Float32Array,
    param: Uint16Array,
    masterLow: Uint16Array,
  ): Promise<void> {
    const initial = this.#initial;
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
    for (const { spec, offset, length: paramLength } of this.#group.params) {
      const from = Math.max(first, offset);
      const to = Math.min(first + length, offset + paramLength);
      if (from < to) await read(spec.name, from - offset, from - first, to - first);
    }
  }

  /** Writes `values`, or zeros. */
  async #write(
    { shard, start, length }: Piece,
    state: StateName,
    values: Float32Array | Uint16Array | undefined,
  ): Promise<void> {
    const type = stateType(state, this.#store.dtype);
    const bytesPer = elementBytes(type);
    const bytes =
      values === undefined
        ? undefined
        : new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    const fill = (offset: number, target: Uint8Array): void => {
      if (bytes === undefined) target.fill(0);
      else target.set(bytes.subarray(offset * bytesPer, offset * bytesPer + target.byteLength));
    };
    await this.#tiers.write(this.#store.location(shard, state), type, start, length, fill);
  }
}

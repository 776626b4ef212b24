/**
 * @file Brings gradients from the device to their home in the canonical order, and watches over
 * them: norm leaves, finiteness, completeness.
 *
 * Canonical gradient (docs/ARCHITECTURE.md): each micro-batch's contribution at each use of a
 * parameter is a complete float32 tensor; contributions of one use are added in ascending
 * micro-batch order; uses are then added in descending block order. The highest use sums in the
 * home itself; in horizontal order lower uses have accumulators of their own until the last
 * micro-batch.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError, assert } from '../../core/errors.js';
import { NORM_LEAF_ELEMENTS } from '../../core/types.js';
import type { MemoryLease } from '../../tiers/host/host-buffer.js';
import { kernels } from '../../tiers/native/binding.js';
import type { StateLocation } from '../../tiers/state-location.js';
import type { TierManager, Turns } from '../../tiers/tier-manager.js';
import type { Block, ParamName } from '../model/block.js';
import { scratchName, type MemoryPlan } from '../plan/placement.js';
import type { ParamAddress, ParameterGroup, Shard } from '../plan/parameter-layout.js';
import type { ParameterStore } from './parameter-store.js';
import type { RowGradients } from './row-gradients.js';

/** Whether a contribution starts a sum or is added to it. */
type Mode = 'replace' | 'add';

interface Accumulator {
  readonly address: ParamAddress;
  readonly block: number;
  readonly location: StateLocation;
  readonly lease: MemoryLease | undefined;
}

/** Tensors of one group that lie next to one another and are written alike. */
interface Run {
  readonly group: ParameterGroup;
  readonly mode: Mode;
  readonly start: number;
  readonly parts: { readonly address: ParamAddress; readonly tensor: Tensor }[];
}

function floats(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

export class GradientWriter {
  readonly #tiers: TierManager;
  readonly #store: ParameterStore;
  readonly #blocks: readonly Block[];
  readonly #leaves = new Map<Shard, Float64Array>();
  readonly #accumulators: Accumulator[] = [];
  /** Accumulators that hold sums of this step which their homes lack. */
  readonly #unmerged = new Set<Accumulator>();

  /** @throws HOST_OUT_OF_MEMORY; nothing stays leased then */
  constructor(
    tiers: TierManager,
    store: ParameterStore,
    blocks: readonly Block[],
    plan: MemoryPlan,
  ) {
    this.#tiers = tiers;
    this.#store = store;
    this.#blocks = blocks;
    const { layout } = store;
    for (const group of layout.groups.filter(({ trainable }) => trainable)) {
      for (const shard of group.shards) {
        this.#leaves.set(shard, new Float64Array(Math.ceil(shard.length / NORM_LEAF_ELEMENTS)));
      }
    }
    try {
      for (const { param, block, tier } of plan.useAccumulators) {
        const name = scratchName.accumulator(param.spec.name, block);
        const lease = tier === 'host' ? tiers.host.lease(param.length * 4, name) : undefined;
        const location: StateLocation | undefined = lease
          ? { kind: 'memory', tier: 'host', bytes: lease.bytes }
          : tiers.volume?.scratch(name);
        assert(location !== undefined, 'an accumulator has a place', { name });
        this.#accumulators.push({ address: param, block, location, lease });
      }
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /**
   * Writes a block's gradients. The tensors stay the caller's.
   *
   * @param first whether they start the sum over micro-batches (they may be a sum already)
   */
  async writeDense(
    blockIndex: number,
    gradients: Readonly<Record<ParamName, Tensor>>,
    first: boolean,
    turns: Turns,
  ): Promise<void> {
    const runs: Run[] = [];
    const entries = Object.entries(gradients)
      .map(([name, tensor]) => ({ address: this.#store.address(name), tensor }))
      .sort((a, b) => a.address.group - b.address.group || a.address.offset - b.address.offset);
    for (const { address, tensor } of entries) {
      const accumulator = this.#accumulatorOf(address, blockIndex);
      if (accumulator !== undefined) {
        await this.#writeAccumulator(accumulator, tensor, first ? 'replace' : 'add', turns);
        continue;
      }
      const mode = this.#modeAt(address, blockIndex, first);
      const last = runs.at(-1);
      const end = last?.parts.at(-1)?.address;
      if (
        last !== undefined &&
        end !== undefined &&
        last.mode === mode &&
        last.group.index === address.group &&
        end.offset + end.length === address.offset
      ) {
        last.parts.push({ address, tensor });
      } else {
        const group = this.#store.group(address);
        runs.push({ group, mode, start: address.offset, parts: [{ address, tensor }] });
      }
    }
    for (const run of runs) await this.#writeRun(run, turns);
  }

  /** Writes the gradient of rows `firstRow …` of a tiled matrix: `tensor` [rows, C]. */
  async writeTile(
    blockIndex: number,
    name: ParamName,
    firstRow: number,
    tensor: Tensor,
    first: boolean,
    turns: Turns,
  ): Promise<void> {
    const address = this.#store.address(name);
    const columns = address.length / (address.spec.shape[0] ?? 1);
    await this.#store.writeGradient(
      address,
      firstRow * columns,
      tensor.size,
      this.#modeAt(address, blockIndex, first),
      (offset, target) => this.#tiers.download(tensor, offset, target, turns),
      this.#onLeaves,
      turns,
    );
  }

  /** Adds the rows' sum to the table's gradient, after all higher uses. */
  async writeRows(name: ParamName, rows: RowGradients, turns: Turns): Promise<void> {
    const address = this.#store.address(name);
    const tied = (this.#store.layout.users.get(name) ?? []).length > 1;
    await this.#store.writeGradient(
      address,
      0,
      address.length,
      tied ? 'add' : 'replace',
      (offset, target) => rows.fill(offset, target),
      this.#onLeaves,
      turns,
    );
  }

  /** @throws NON_FINITE naming the owning block, when a complete gradient is not finite */
  checkFinite(group: ParameterGroup): void {
    for (const shard of group.shards) {
      if (this.leavesOf(shard).every(Number.isFinite)) continue;
      const block = this.#blocks[group.block]?.name ?? String(group.block);
      throw new SpillwayError('NON_FINITE', `the gradient of block ${block} is not finite`, {
        block,
        parameters: group.params.map(({ spec }) => spec.name).slice(0, 4),
      });
    }
  }

  /** Norm leaves of a shard's gradient as it was last written. */
  leavesOf(shard: Shard): Float64Array {
    const leaves = this.#leaves.get(shard);
    assert(leaves !== undefined, 'a trainable shard has norm leaves', { shard: shard.id });
    return leaves;
  }

  /** Leaves of all trainable shards in canonical order. */
  *allLeaves(): Generator<Float64Array> {
    for (const shard of this.#store.layout.shards) {
      const leaves = this.#leaves.get(shard);
      if (leaves !== undefined) yield leaves;
    }
  }

  /** Gives accumulators back. Idempotent. */
  dispose(): void {
    for (const { lease } of this.#accumulators) lease?.dispose();
    this.#accumulators.length = 0;
  }

  readonly #onLeaves = (shard: Shard, firstElement: number, values: Float32Array): void => {
    const from = firstElement / NORM_LEAF_ELEMENTS;
    const count = Math.ceil(values.length / NORM_LEAF_ELEMENTS);
    kernels().squaredNormLeaves(values, this.leavesOf(shard).subarray(from, from + count));
  };

  #modeAt(address: ParamAddress, blockIndex: number, first: boolean): Mode {
    const users = this.#store.layout.users.get(address.spec.name) ?? [];
    return first && users.at(-1) === blockIndex ? 'replace' : 'add';
  }

  #accumulatorOf(address: ParamAddress, block: number): Accumulator | undefined {
    return this.#accumulators.find((use) => use.address === address && use.block === block);
  }

  async #writeAccumulator(
    accumulator: Accumulator,
    tensor: Tensor,
    mode: Mode,
    turns: Turns,
  ): Promise<void> {
    this.#unmerged.add(accumulator);
    await this.#tiers.write(
      accumulator.location,
      'float32',
      0,
      tensor.size,
      (offset, target) => this.#tiers.download(tensor, offset, floats(target), turns),
      { mode, turns },
    );
  }

  /** Adds the sums of the parameter's lower uses to its home, highest first, once. */
  async mergeUses(name: ParamName, turns: Turns): Promise<void> {
    const address = this.#store.address(name);
    const uses = [...this.#unmerged]
      .filter((use) => use.address === address)
      .sort((a, b) => b.block - a.block);
    for (const use of uses) {
      this.#unmerged.delete(use);
      const { location } = use;
      await this.#store.writeGradient(
        address,
        0,
        address.length,
        'add',
        (offset, target) =>
          this.#tiers.read(
            location,
            'float32',
            offset,
            target.length,
            (at, bytes) => {
              target.set(floats(bytes), at);
            },
            turns,
          ),
        this.#onLeaves,
        turns,
      );
    }
  }

  async #writeRun(run: Run, turns: Turns): Promise<void> {
    const count = run.parts.reduce((sum, { address }) => sum + address.length, 0);
    await this.#store.writeGroupGradient(
      run.group,
      run.start,
      count,
      run.mode,
      async (offset, target) => {
        const from = run.start + offset;
        for (const { address, tensor } of run.parts) {
          const first = Math.max(from, address.offset);
          const last = Math.min(from + target.length, address.offset + address.length);
          if (first >= last) continue;
          const part = target.subarray(first - from, last - from);
          await this.#tiers.download(tensor, first - address.offset, part, turns);
        }
      },
      this.#onLeaves,
      turns,
    );
  }
}

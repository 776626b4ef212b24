/**
 * @file Measures what forward passes that keep nothing need on the device: whole batches for
 * evaluation, and the next tokens of one sequence for generation.
 *
 * As workspace-probe.ts, which says how: each kind of block runs once on zeros at the largest shape,
 * in the order in which compute-runner.ts and head-passes.ts allocate and free.
 */
import type { Tensor } from '@tensorflow/tfjs-core';
import { SpillwayError, assert } from '../../core/errors.js';
import type { ComputeDtype } from '../../core/types.js';
import type { Device } from '../../tiers/device/device.js';
import type { Block, BlockAux, MicroBatch, Params, SequencePlace } from '../model/block.js';
import type { ForwardProfile } from '../plan/block-profile.js';
import { LOGITS_LAG } from '../plan/build-continuation.js';
import type { ParameterLayout } from '../plan/parameter-layout.js';
import { tensorBytes } from '../plan/tensor-bytes.js';
import {
  extendDense,
  forwardDense,
  forwardRows,
  lastToken,
  prepareTiled,
  runTiled,
  tileLogits,
} from './block-compute.js';
import { ProbeBench } from './probe-bench.js';

/** What probes run on. */
export interface ProbeSetting {
  readonly device: Device;
  readonly blocks: readonly Block[];
  readonly layout: ParameterLayout;
  readonly dtype: ComputeDtype;
}

/** Profiles of all blocks at the shapes of `example`, losses included. */
export function probeForward(setting: ProbeSetting, example: MicroBatch): ForwardProfile[] {
  return probeEach(setting, (bench, block, index, params, inputShape) => {
    const aux = auxOf(example.fields, index);
    let tensors: Record<string, Tensor> = {};
    bench.uncounted(() => Object.values((tensors = bench.fields(block, aux))));
    const ready = { ...aux, tensors };
    const input = inputShape === undefined ? [] : [bench.zeros(inputShape)];
    switch (block.kind) {
      case 'row': {
        const rows = gathered(bench, block, aux, 0);
        return { output: forwardRows(bench.device, block, rows, ready), rows };
      }
      case 'dense':
        return { output: forwardDense(bench.device, block, params, input, ready) };
      case 'tiled':
        return runLossTile(bench, block, params, input[0]!, ready);
    }
  });
}

/**
 * Profiles of all blocks for the next tokens of a sequence of at most `limit`: at its beginning and
 * end, one or `count` at a time.
 *
 * @throws BLOCK_INVALID naming a block that cannot generate
 */
export function probeSequence(
  setting: ProbeSetting,
  { count, limit }: { readonly count: number; readonly limit: number },
): ForwardProfile[] {
  checkGenerates(setting.blocks);
  const first = probeTokens(setting, { first: 0, limit }, 1);
  const most = Math.min(count, limit);
  const runs = [
    first,
    probeTokens(setting, { first: limit - most, limit }, most, first),
    probeTokens(setting, { first: limit - 1, limit }, 1, first),
  ];
  return first.map((profile, index) => {
    const largest = (field: 'workBytes' | 'widenedBytes' | 'rowBytes'): number =>
      Math.max(...runs.map((profiles) => profiles[index]?.[field] ?? 0));
    return {
      ...profile,
      workBytes: largest('workBytes'),
      widenedBytes: largest('widenedBytes'),
      rowBytes: largest('rowBytes'),
    };
  });
}

/** Profiles for `count` tokens at `place`; `known` tells what blocks keep of those before. */
function probeTokens(
  setting: ProbeSetting,
  place: SequencePlace,
  count: number,
  known: readonly ForwardProfile[] = [],
): ForwardProfile[] {
  return probeEach(setting, (bench, block, index, params, inputShape) => {
    const { device } = bench;
    const input = inputShape === undefined ? [] : [bench.zeros(inputShape)];
    // What the block before added, on its way to the cache.
    const before = (known[index - 1]?.cacheWidths ?? []).map((width) =>
      bench.zeros([count, width]),
    );
    switch (block.kind) {
      case 'row': {
        const aux = auxOf(tokenFields(count), index);
        const rows = gathered(bench, block, aux, place.first);
        return { output: forwardRows(device, block, rows, aux), rows };
      }
      case 'dense': {
        const widths = place.first === 0 ? [] : (known[index]?.cacheWidths ?? []);
        const cached = bench.uncounted(() =>
          widths.map((width) => bench.zeros([place.first, width])),
        );
        const { output, added } = extendDense(device, block, params, input, cached, place);
        return { output, kept: added };
      }
      case 'tiled':
        return { output: runLogitsTile(bench, block, params, input[0]!, before) };
    }
  });
}

/** What one block made. */
interface Ran {
  readonly output: Tensor;
  /** What is kept of its tokens. */
  readonly kept?: readonly Tensor[];
  /** What it gathered. */
  readonly rows?: readonly Tensor[];
  /** Of the head: what it keeps between tiles. */
  readonly heldBytes?: number;
}

/** Runs one block on tensors of the bench. */
type BlockRun = (
  bench: ProbeBench,
  block: Block,
  index: number,
  params: Params,
  inputShape: readonly number[] | undefined,
) => Ran;

function probeEach(
  { device, blocks, layout, dtype }: ProbeSetting,
  run: BlockRun,
): ForwardProfile[] {
  const known = new Map<string, ForwardProfile>();
  const profiles: ForwardProfile[] = [];
  for (const [index, block] of blocks.entries()) {
    const inputShape = profiles[index - 1]?.outputShape;
    const shapes = block.uses.map((name) => layout.params.get(name)?.spec.shape.join('x') ?? '');
    const before = blocks[index - 1]?.kindKey ?? '';
    const key = [block.kind, block.kindKey, before, inputShape?.join() ?? '', ...shapes].join('/');
    let profile = known.get(key);
    if (profile === undefined) {
      const bench = new ProbeBench(device, layout, dtype);
      const { value, widenedBytes } = bench.measure(() => {
        const params = bench.params(wholeParams(block));
        let ran: Ran | undefined;
        const { bytes } = bench.peak(() => {
          ran = run(bench, block, index, params, inputShape);
          return [ran.output, ...(ran.kept ?? [])].map((tensor) => device.own(tensor));
        });
        const { output, kept = [], rows = [], heldBytes } = ran!;
        const made = bytesOf([output]);
        const input = inputShape === undefined ? 0 : tensorBytes(sizeOf(inputShape));
        // An output that only views what was fetched is copied.
        const copied = bytes < input + made ? made : 0;
        return {
          outputShape: output.shape,
          workBytes: bytes + copied,
          heldBytes: heldBytes ?? Math.max(input, made),
          rowBytes: bytesOf(rows),
          cacheWidths: kept.map((tensor) => tensor.shape[1] ?? 0),
        };
      });
      profile = { ...value, widenedBytes };
      known.set(key, profile);
    }
    profiles.push(profile);
  }
  return profiles;
}

function wholeParams(block: Block): readonly string[] {
  if (block.kind === 'row') return [];
  return block.kind === 'tiled'
    ? block.uses.filter((name) => name !== block.tiledParam)
    : block.uses;
}

function checkGenerates(blocks: readonly Block[]): void {
  const last = blocks.length - 1;
  const unable = blocks.find((block, index) => {
    if (block.kind === 'row') return false;
    return block.kind === 'dense'
      ? block.extend === undefined || index === last
      : block.logits === undefined;
  });
  if (unable === undefined) return;
  const missing =
    unable.kind === 'tiled' ? 'logits' : unable === blocks[last] ? 'tiled head' : 'extend';
  throw new SpillwayError(
    'BLOCK_INVALID',
    `block ${unable.name} cannot generate: it has no ${missing}; see src/model/block.ts`,
    { block: unable.name },
  );
}

function auxOf(fields: BlockAux['fields'], block: number): BlockAux {
  return { fields, tensors: {}, lossScale: 1, seed: 0, step: 0, microBatch: 0, block };
}

function tokenFields(count: number): BlockAux['fields'] {
  return { input_ids: { data: new Int32Array(count), shape: [1, count] } };
}

function gathered(
  bench: ProbeBench,
  block: Extract<Block, { kind: 'row' }>,
  aux: BlockAux,
  first: number,
): Tensor[] {
  return bench.uncounted(() =>
    block.gathers.map((gather) => {
      const { length, spec } = bench.address(gather.param);
      const columns = length / (spec.shape[0] ?? 1);
      return bench.zeros([gather.indices(aux.fields, first).length, columns]);
    }),
  );
}

function bytesOf(tensors: readonly Tensor[]): number {
  return tensors.reduce((sum, { size }) => sum + tensorBytes(size), 0);
}

function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, length) => product * length, 1);
}

type Tiled = Extract<Block, { kind: 'tiled' }>;

/** Made before anything that is counted: a peak that came earlier would lack it. */
function tileOf(bench: ProbeBench, block: Tiled) {
  const { length, spec } = bench.address(block.tiledParam);
  const rows = spec.shape[0] ?? 1;
  const rowCount = Math.min(block.tileRows, rows);
  const [weight] = bench.uncounted(() => [bench.zeros([rowCount, length / rows])]);
  return { weight: weight!, index: 0, firstRow: 0, rowCount };
}

function runLossTile(
  bench: ProbeBench,
  block: Tiled,
  params: Params,
  input: Tensor,
  aux: BlockAux,
): Ran {
  const { device } = bench;
  const tile = tileOf(bench, block);
  const inputBytes = bytesOf([input]);
  const prepared = ownAll(bench, prepareTiled(device, block, params, input, aux));
  const begun = runTiled(device, () => block.begin(prepared, aux));
  bench.own(begun);
  input.dispose();
  const carry = runTiled(device, () => block.forwardTile(tile, prepared, begun, aux));
  bench.own(carry);
  for (const tensor of begun) if (!carry.includes(tensor)) tensor.dispose();
  const { losses, saved } = runTiled(device, () => block.end(prepared, carry, aux));
  bench.own(saved);
  const kept = Math.max(bytesOf(begun), bytesOf(carry), bytesOf(saved));
  return { output: losses, heldBytes: Math.max(inputBytes, bytesOf(prepared) + kept) };
}

function runLogitsTile(
  bench: ProbeBench,
  block: Tiled,
  params: Params,
  input: Tensor,
  before: readonly Tensor[],
): Tensor {
  const { device } = bench;
  const tile = tileOf(bench, block);
  const last = lastToken(device, input);
  const aux = auxOf(tokenFields(1), 0);
  const prepared = ownAll(bench, prepareTiled(device, block, params, last, aux));
  for (const tensor of [last, input, ...before]) tensor.dispose();
  assert(block.logits !== undefined, 'the head gives logits');
  // Logits of the tiles before, on their way to the host.
  for (let before = 0; before < LOGITS_LAG; before += 1) bench.zeros([1, tile.rowCount]);
  return tileLogits(device, block, tile, prepared);
}

function ownAll(bench: ProbeBench, tensors: readonly Tensor[]): Tensor[] {
  const owned = tensors.map((tensor) => bench.device.own(tensor));
  bench.own(owned);
  return owned;
}

/**
 * @file The Block seam: a model is a chain of blocks; the engine moves bytes, blocks compute.
 *
 * A block is a pure function of its parameters, its inputs and `aux`: it is replayed in the
 * reverse pass, so it must give the same bits each time (randomness only from `aux.seed`). Its
 * tfjs operations run on whichever device the engine uses. Three kinds:
 *
 * - `dense`: all its parameters are on the device at once. Built-in decoder layers and users' own
 *   chains of tfjs functions.
 * - `row`: parameters are tables of which only some rows are read (embeddings). The engine gathers
 *   the rows on the host, so that the table never lies on the device; the reverse pass returns row
 *   gradients.
 * - `tiled`: one matrix is too large to be on the device at once (head over the vocabulary). It is
 *   visited in tiles of rows, forward and backward, with a carry between tiles.
 *
 * The chain's first block gets no inputs (it reads the batch's fields); each later one gets the
 * single output of the one before; the last one returns losses.
 *
 * Shapes: B batch, T sequence, C hidden, V vocabulary, N = B*T.
 */
import type { Tensor } from '@tensorflow/tfjs-core';

/** Name of a parameter, unique in the model; for Hugging Face models the name in the files. */
export type ParamName = string;

/** How `init` fills a parameter. Hugging Face's conventions: normal(0, std), zeros or ones. */
export type ParamInit =
  | { readonly kind: 'zeros' }
  | { readonly kind: 'ones' }
  | { readonly kind: 'normal'; readonly std: number };

/** One parameter tensor and its owner's wishes. */
export interface ParamSpec {
  readonly name: ParamName;
  readonly shape: readonly number[];
  readonly init: ParamInit;
  /** Whether weight decay applies: false on norms and biases. */
  readonly decay: boolean;
  /** False for frozen parameters. Default true. */
  readonly trainable?: boolean;
}

/** Values of a batch on the host, row-major. */
export interface HostTensor {
  readonly data: Int32Array | Float32Array;
  readonly shape: readonly number[];
}

/**
 * One micro-batch. `weight` is its number of loss terms (unmasked tokens); the step's loss is the
 * sum of all loss terms over the sum of the weights.
 */
export interface MicroBatch {
  readonly fields: Readonly<Record<string, HostTensor>>;
  readonly weight: number;
}

/** What a block knows besides parameters and inputs. Equal at replay. */
export interface BlockAux {
  /** The micro-batch's fields on the host. */
  readonly fields: Readonly<Record<string, HostTensor>>;
  /** Those fields that the block lists in `reads` and `readsIfPresent`, on the device. Owned by the
   * engine. */
  readonly tensors: Readonly<Record<string, Tensor>>;
  /** 1 / (sum of the weights of the accumulated batch): factor of each loss term's gradient. */
  readonly lossScale: number;
  readonly seed: number;
  /** Zero-based. */
  readonly step: number;
  readonly microBatch: number;
  readonly block: number;
}

export type Params = Readonly<Record<ParamName, Tensor>>;

export interface BlockBase {
  /** Unique in the model, e.g. `h.3`; shown in errors and traces. */
  readonly name: string;
  /** Blocks of one kind, configuration and shape share this key; workspaces are probed per key. */
  readonly kindKey: string;
  /** Parameters that this block owns, in storage order. */
  readonly owns: readonly ParamSpec[];
  /** All parameters that `apply` reads: its own, and other blocks' (tied weights). */
  readonly uses: readonly ParamName[];
  /** Fields of the batch that are needed on the device. */
  readonly reads?: readonly string[];
  /** Fields that are put on the device where the batch has them (documents of packed rows). */
  readonly readsIfPresent?: readonly string[];
}

/** Where the next tokens of one sequence stand. */
export interface SequencePlace {
  /** P: tokens before them. */
  readonly first: number;
  /** The most tokens that the sequence will have. */
  readonly limit: number;
}

/** What `extend` gives. */
export interface Extension {
  /** [1, M, C] */
  readonly output: Tensor;
  /** What later tokens need of these (keys, values): [M, width] each, always as many tensors of the
   * same widths. */
  readonly added: Tensor[];
}

export interface DenseBlock extends BlockBase {
  readonly kind: 'dense';
  /**
   * @param params the tensors of `uses`; not to be disposed
   * @param inputs `[]` in the first block, else the previous block's output
   * @returns one output tensor; in the last block the losses, of any shape, one element per loss
   *   term (masked ones zero), unscaled. The engine runs it inside a tape, so intermediate tensors
   *   need no disposal.
   */
  apply(params: Params, inputs: readonly Tensor[], aux: BlockAux): Tensor[];
  /**
   * For generation: `apply` on the next M tokens of one sequence, whose earlier P tokens are known
   * by what `extend` added for them. The engine keeps that, wherever it fits, and gives it back; a
   * block whose tokens do not see one another adds nothing. Rows are what `apply` on the whole
   * sequence computes, however it is cut. Blocks without it cannot generate.
   *
   * @param inputs one [1, M, C]
   * @param cached the added tensors of all P earlier tokens, [P, width] each; `[]` where P is 0.
   *   They are valid during the call, and not to be disposed
   * @returns new tensors; the engine runs it in `tf.tidy`
   */
  extend?(
    params: Params,
    inputs: readonly Tensor[],
    cached: readonly Tensor[],
    place: SequencePlace,
  ): Extension;
}

/** Rows `indices` of table `param` ([rows, C]), in that order, as a [indices.length, C] tensor. */
export interface RowGather {
  readonly param: ParamName;
  /** Row numbers, one per output row; checked against the table by the engine
   * (TOKEN_OUT_OF_RANGE). `first` is the number of tokens before these in their sequence: 0 except
   * in generation. */
  indices(fields: Readonly<Record<string, HostTensor>>, first?: number): Int32Array;
}

export interface RowBlock extends BlockBase {
  readonly kind: 'row';
  readonly gathers: readonly RowGather[];
  /** @param rows one [n, C] tensor per gather. Always the first block: no inputs. Differentiable
   * in `rows`; must be linear in them (the reverse pass does not gather again), which
   * `backward` states. */
  apply(rows: readonly Tensor[], aux: BlockAux): Tensor[];
  /** Gradient of each gather's rows, [n, C] each, from the output's gradient. New tensors. */
  backward(dy: Tensor, aux: BlockAux): Tensor[];
}

/** Rows `firstRow … firstRow + rowCount` of the tiled matrix, as [rowCount, C]. */
export interface Tile {
  readonly weight: Tensor;
  readonly index: number;
  readonly firstRow: number;
  readonly rowCount: number;
}

/**
 * The last block: losses over a matrix that is read in row tiles, ascending, once forward and once
 * backward. All methods but `prepare` return new tensors that the engine owns, and must leave no
 * other tensors behind (the engine runs each in `tf.tidy`).
 */
export interface TiledBlock extends BlockBase {
  readonly kind: 'tiled';
  /** The matrix [V, C]; one of `uses`. The others are loaded whole, for `prepare`. */
  readonly tiledParam: ParamName;
  /** Rows per tile: a function of model and shape only, since it orders sums. */
  readonly tileRows: number;
  /** What precedes the tiles (a norm), run in a tape and replayed in reverse. [h: [N, C]]. */
  prepare(params: Params, inputs: readonly Tensor[], aux: BlockAux): Tensor[];
  /** Carry before the first tile. */
  begin(prepared: readonly Tensor[], aux: BlockAux): Tensor[];
  /** Carry after `tile`; the engine disposes the old one. */
  forwardTile(
    tile: Tile,
    prepared: readonly Tensor[],
    carry: readonly Tensor[],
    aux: BlockAux,
  ): Tensor[];
  /** Per-term losses [N] (masked ones zero), and what the reverse pass needs. */
  end(
    prepared: readonly Tensor[],
    carry: readonly Tensor[],
    aux: BlockAux,
  ): { losses: Tensor; saved: Tensor[] };
  /** Gradient of the tile [rowCount, C] and this tile's contribution to that of `prepared`; the
   * engine adds the contributions in ascending tile order. Includes `aux.lossScale`. */
  backwardTile(
    tile: Tile,
    prepared: readonly Tensor[],
    saved: readonly Tensor[],
    aux: BlockAux,
  ): { dTile: Tensor; dPrepared: Tensor[] };
  /** For generation: the logits [N, rowCount] of a tile's rows. Blocks without it cannot generate. */
  logits?(tile: Tile, prepared: readonly Tensor[]): Tensor;
}

export type Block = DenseBlock | RowBlock | TiledBlock;

/** Reads one parameter's initial values, piece by piece. */
export interface TensorSource {
  readonly name: ParamName;
  readonly shape: readonly number[];
  /** Fills `target` with elements `offset … offset + target.length`, widened or rounded to
   * float32. */
  read(offset: number, target: Float32Array): Promise<void>;
}

/** A model: blocks in order, and where their parameters' first values come from. */
export interface Model {
  /** For messages: `gpt2`, `llama`, or the user's name. */
  readonly name: string;
  readonly blocks: readonly Block[];
  /** The source of a parameter; called once per parameter when the engine is created. */
  source(spec: ParamSpec): TensorSource | Promise<TensorSource>;
  /** Writes the folder's files other than weights (config.json, tokenizer files) into `folder`. */
  writeCompanions?(folder: string): Promise<void>;
  /** Closes files that sources hold open. Idempotent. */
  close(): Promise<void>;
}

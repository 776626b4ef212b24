/**
 * @file What one block needs on the device, in bytes, at the largest shape of a step.
 *
 * Measured once per block kind by the workspace probe (src/engine/workspace-probe.ts), which runs
 * the block's own functions; the plan adds these numbers up.
 */

/** Bytes of the head's tiled passes; see TiledBlock in src/model/block.ts for the phases. */
export interface TiledProfile {
  /** Output of `prepare`, per micro-batch. */
  readonly preparedBytes: number;
  /** The larger of carry and saved tensors, per micro-batch. */
  readonly carryBytes: number;
  /** Peak above what is live before the call. */
  readonly prepareBytes: number;
  readonly forwardTileBytes: number;
  readonly endBytes: number;
  readonly backwardTileBytes: number;
  readonly prepareReverseBytes: number;
  /** One tile of the matrix, float32. */
  readonly tileBytes: number;
  /** Losses of one micro-batch. */
  readonly lossBytes: number;
}

/** What one block needs in a forward pass that keeps nothing. */
export interface ForwardProfile {
  readonly outputShape: readonly number[];
  /** Float32 copies of parameters kept as bfloat16, for kernels that do not read these. */
  readonly widenedBytes: number;
  /** Peak above what is fetched (whole parameters, rows, a tile, what is cached of the sequence) and
   * batch fields: input, temporaries, output. */
  readonly workBytes: number;
  /** What another micro-batch has on the device beside it: its input or output, or what the head
   * keeps between tiles. */
  readonly heldBytes: number;
  /** Bytes of the rows that a row block gathers. */
  readonly rowBytes: number;
  /** Elements that it keeps of each token of a sequence, by cached tensor; `[]` in evaluation. */
  readonly cacheWidths: readonly number[];
}

export interface BlockProfile {
  readonly outputShape: readonly number[];
  readonly outputBytes: number;
  /** Float32 copies of parameters kept as bfloat16, for kernels that do not read these. */
  readonly widenedBytes: number;
  /** Batch fields on the device. */
  readonly fieldBytes: number;
  /** Gathered rows of a row block (also its row gradients). */
  readonly rowBytes: number;
  /** Peak of the forward pass above parameters, inputs and fields; includes the output. */
  readonly forwardBytes: number;
  /** Peak of recompute and reverse pass above parameters, inputs, fields and the output's
   * gradient; includes the gradients that it returns. */
  readonly reverseBytes: number;
  readonly tiled?: TiledProfile;
}

/**
 * @file Names and attributes of the fused kernels: operations of the models that are one launch.
 *
 * They are tfjs kernels under names of our own. A backend that registers them all computes the
 * built-in models with them (src/model/ops); on other backends the models are made of tfjs's own.
 */

/** Names by operation. A kernel's inputs, attributes and outputs stand at its registration. */
export const FUSED = {
  attention: 'SpillwayCausalAttention',
  attentionGrad: 'SpillwayCausalAttentionGrad',
  cachedAttention: 'SpillwayCachedAttention',
  layerNorm: 'SpillwayLayerNorm',
  rmsNorm: 'SpillwayRmsNorm',
  normGradX: 'SpillwayNormGradX',
  normGradWeight: 'SpillwayNormGradWeight',
  geluNew: 'SpillwayGeluNew',
  geluNewGrad: 'SpillwayGeluNewGrad',
  swiglu: 'SpillwaySwiglu',
  swigluGrad: 'SpillwaySwigluGrad',
  rotary: 'SpillwayRotary',
  lossTile: 'SpillwayCrossEntropyTile',
  lossTileGrad: 'SpillwayCrossEntropyTileGrad',
} as const;

/** Shape of an attention, and how its operands lie. */
export interface AttentionAttrs {
  /**
   * - `planes`: q [B, H, T, D], k and v [B, Hkv, T, D], output as q;
   * - `rows`: q [B·T, H·D], k and v [B·T, Hkv·D], output as q;
   * - `joined`: q is [B·T, (H + 2·Hkv)·D] and holds k and v behind its queries, output [B·T, H·D].
   */
  readonly layout: 'planes' | 'rows' | 'joined';
  readonly batch: number;
  readonly length: number;
  readonly heads: number;
  /** A divisor of `heads`. */
  readonly keyHeads: number;
  /** Of one head. */
  readonly width: number;
}

/** Shape of an attention of new rows to the rows of a cache and to one another. */
export interface CachedAttentionAttrs {
  readonly heads: number;
  /** A divisor of `heads`. */
  readonly keyHeads: number;
  /** Of one head. */
  readonly width: number;
}

/** Of a norm. */
export interface NormAttrs {
  readonly epsilon: number;
}

/** Of a rotation of rows of width `width`, `rowsPerPosition` of which share a position. */
export interface RotaryAttrs {
  readonly width: number;
  readonly length: number;
  readonly rowsPerPosition: number;
  /** -1 turns back. */
  readonly direction: 1 | -1;
}

/** Where a tile of logits lies among all tokens and in the vocabulary. */
export interface LossTileAttrs {
  readonly firstToken: number;
  readonly firstRow: number;
}

/** Gradient of the losses' sum, times `scale`. */
export interface LossTileGradAttrs extends LossTileAttrs {
  readonly scale: number;
}

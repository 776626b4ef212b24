/**
 * @file The fused kernels: operations of the models that tfjs has no kernel for.
 */
import { registerCachedAttention } from './cached-attention.js';
import { registerFusedAttention } from './fused-attention.js';
import { registerFusedLoss } from './fused-loss.js';
import { registerFusedRows } from './fused-rows.js';

export function registerFused(): void {
  registerFusedAttention();
  registerCachedAttention();
  registerFusedRows();
  registerFusedLoss();
}

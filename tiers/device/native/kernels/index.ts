/**
 * @file Registers every kernel family, once per process; one line each.
 */
import { registerBinary } from './binary.js';
import { registerCast } from './cast.js';
import { registerCreation } from './creation.js';
import { registerFill } from './fill.js';
import { registerFused } from './fused.js';
import { registerGather } from './gather.js';
import { registerJoining } from './joining.js';
import { registerMatMul } from './matmul.js';
import { registerMovement } from './movement.js';
import { registerReduce } from './reduce.js';
import { registerSelect } from './select.js';
import { registerSharing } from './sharing.js';
import { registerSoftmax } from './softmax.js';
import { registerTranspose } from './transpose.js';
import { registerUnary } from './unary.js';

let done = false;

/** Makes all native kernels known to tfjs. Idempotent. */
export function registerNativeKernels(): void {
  if (done) return;
  done = true;
  registerBinary();
  registerCast();
  registerCreation();
  registerFill();
  registerFused();
  registerGather();
  registerJoining();
  registerMatMul();
  registerMovement();
  registerReduce();
  registerSelect();
  registerSharing();
  registerSoftmax();
  registerTranspose();
  registerUnary();
}

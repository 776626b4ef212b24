/** @file Numbers of the ring's operations, as `RingOp` in native/ring.h has them. */
export const RING_OP = { read: 0, write: 1, flush: 2 } as const;

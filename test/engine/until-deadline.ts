/**
 * @file Random cases for a limited time, each to its end: one that is cut off would go on beside what
 * runs next.
 */

/** Milliseconds by the seconds in SPILLWAY_PLACEMENT_SECONDS, or so many seconds without it. */
export function timeLimitMs(seconds: number): number {
  return 1000 * Number(process.env['SPILLWAY_PLACEMENT_SECONDS'] ?? seconds);
}

/**
 * `body` for `limitMs`, and as long again to shrink a case that fails; later cases pass unseen.
 */
export function untilDeadline<T>(
  limitMs: number,
  body: (one: T) => Promise<void>,
): (one: T) => Promise<void> {
  let deadline: number | undefined;
  let hasFailed = false;
  return async (one) => {
    deadline ??= performance.now() + limitMs;
    if (performance.now() > deadline) return;
    try {
      await body(one);
    } catch (error) {
      if (!hasFailed) deadline = performance.now() + limitMs;
      hasFailed = true;
      throw error;
    }
  };
}

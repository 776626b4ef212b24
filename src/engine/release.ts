/**
 * @file How an engine gives back what it was built from.
 */

/** Frees one thing that the engine owns. Idempotent. */
export type Release = () => Promise<void> | void;

/** Frees everything, newest first, whatever fails meanwhile. @returns the failures */
export async function releaseAll(
  owned: readonly Release[],
): Promise<{ readonly error: unknown }[]> {
  const failures: { error: unknown }[] = [];
  for (const release of owned.toReversed()) {
    try {
      await release();
    } catch (error) {
      failures.push({ error });
    }
  }
  return failures;
}

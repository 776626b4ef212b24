/**
 * @file What must happen before the process ends in the middle of things: a terminal is tidied.
 *
 * Commands register while they run; whoever is about to end the process calls `tidyUp` before it
 * prints its last line. Actions are synchronous and idempotent.
 */
const actions = new Set<() => void>();

/** Runs `action` when the process ends abruptly. @returns takes it back */
export function onAbruptEnd(action: () => void): () => void {
  actions.add(action);
  return () => void actions.delete(action);
}

/** Runs what is registered. Never throws: an error is about to be told. */
export function tidyUp(): void {
  for (const action of actions) {
    try {
      action();
    } catch {
      // The terminal may be gone.
    }
  }
  actions.clear();
}

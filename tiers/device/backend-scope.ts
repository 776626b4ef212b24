/**
 * @file Sets the tfjs backend around synchronous code and puts back what was there.
 *
 * `tf.setBackend` cannot restore "none chosen yet", and sets every kernel up again each time; so this exchanges the four members of tfjs's engine that it would write (tfjs-core 4.22.0,
 * src/engine.ts). A backend that is still starting up stays pending and continues afterwards.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { KernelBackend } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';

interface BackendState {
  backendName?: string | null | undefined;
  backendInstance?: KernelBackend | null | undefined;
  profiler?: unknown;
  pendingBackendInit?: Promise<unknown> | null | undefined;
}

/** The profiler that tfjs made for a backend; it runs kernels when tfjs's DEBUG flag is on. */
const profilers = new WeakMap<KernelBackend, unknown>();

/** Runs `body` with backend `name`, whose instance is `backend`. */
export function withBackend<T>(name: string, backend: KernelBackend, body: () => T): T {
  const engine = tf.engine() as unknown as BackendState & { pendingBackendInitId?: unknown };
  assert(
    typeof engine.pendingBackendInitId === 'number',
    'tfjs-core is 4.22.0, whose engine members Spillway exchanges',
    { version: tf.version_core },
  );
  if (engine.backendInstance === backend && engine.backendName === name) return body();
  const { backendName, backendInstance, profiler, pendingBackendInit } = engine;
  engine.backendName = name;
  engine.backendInstance = backend;
  engine.pendingBackendInit = null;
  try {
    if (!profilers.has(backend)) {
      // Once per backend by tfjs's own road, which runs to its end before it returns here.
      void tf.setBackend(name);
      profilers.set(backend, engine.profiler);
    }
    engine.profiler = profilers.get(backend);
    return body();
  } finally {
    Object.assign(engine, { backendName, backendInstance, profiler, pendingBackendInit });
  }
}

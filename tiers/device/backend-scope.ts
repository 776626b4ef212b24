/**
 * @file Sets the tfjs backend around synchronous code and puts back what was there.
 *
 * `tf.setBackend` cannot restore "none chosen yet", and sets every kernel up again each time; so this exchanges the four members of tfjs's engine that it would write (tfjs-core 4.22.0,
 * src/engine.ts). A backend that is still starting up stays pending and continues afterwards.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { KernelBackend } from '@tensorflow/tfjs-core';
import { assert } from '../../core/errors.js';
import { CPU_BACKEND_NAME, cpuBackend } from './cpu-backend.js';

interface BackendState {
  backendName?: string | null | undefined;
  backendInstance?: KernelBackend | null | undefined;
  profiler?: unknown;
  pendingBackendInit?: Promise<unknown> | null | undefined;
}

type Engine = BackendState & {
  pendingBackendInitId?: unknown;
  registry?: Record<string, KernelBackend | undefined>;
};

/** The profiler of each backend; it runs kernels when tfjs's DEBUG flag is on. */
const profilers = new WeakMap<KernelBackend, object>();

/**
 * Runs `body` with backend `name` (whose kernels run) and the instance `backend`, which tfjs need
 * not know: several devices have kernels in common and an instance each.
 */
export function withBackend<T>(name: string, backend: KernelBackend, body: () => T): T {
  const engine = tf.engine() as unknown as Engine;
  assert(
    typeof engine.pendingBackendInitId === 'number' && typeof engine.registry === 'object',
    'tfjs-core is 4.22.0, whose engine members Spillway exchanges',
    { version: tf.version_core },
  );
  if (engine.backendInstance === backend && engine.backendName === name) return body();
  const { backendName, backendInstance, profiler, pendingBackendInit } = engine;
  engine.backendName = name;
  engine.backendInstance = backend;
  engine.pendingBackendInit = null;
  try {
    if (!profilers.has(backend)) profilers.set(backend, makeProfiler(engine, name, backend));
    engine.profiler = profilers.get(backend);
    return body();
  } finally {
    Object.assign(engine, { backendName, backendInstance, profiler, pendingBackendInit });
  }
}

function makeProfiler(engine: Engine, name: string, backend: KernelBackend): object {
  if (engine.registry?.[name] === backend) {
    // tfjs's own road, which runs to its end before it returns here.
    void tf.setBackend(name);
    return engine.profiler as object;
  }
  // tfjs does not export the class.
  const known = withBackend(CPU_BACKEND_NAME, cpuBackend(), () => engine.profiler as object);
  const Profiler = known.constructor as new (timer: KernelBackend) => object;
  return new Profiler(backend);
}

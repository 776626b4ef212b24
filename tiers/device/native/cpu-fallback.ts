/**
 * @file Kernels that the addon has not: tfjs's `cpu` kernel between two copies.
 *
 * Right and slow: it waits for the compute queue, runs in JavaScript and copies the result back.
 * Each call is counted on the backend, and the first of each name in a process is warned about.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { KernelConfig, TensorInfo, TypedArray } from '@tensorflow/tfjs-core';
import { stderrLogger, warnOnce } from '../../../core/logger.js';
import { CPU_BACKEND_NAME, cpuBackend, type CpuBackend } from '../cpu-backend.js';
import { nativeArray, nativeDtype } from './native-dtype.js';
import type { NativeBackend } from './native-backend.js';
import { NATIVE_BACKEND_NAME, registerNative, type NativeKernelCall } from './register-kernel.js';

interface CpuBackendWithTensors extends CpuBackend {
  makeTensorInfo(shape: number[], dtype: string, values: TypedArray): TensorInfo;
}

/** Gives every kernel of tfjs's cpu backend that has no native one to the native backend. Idempotent. */
export function registerFallbacks(): void {
  cpuBackend();
  for (const config of tf.getKernelsForBackend(CPU_BACKEND_NAME)) {
    if (tf.getKernel(config.kernelName, NATIVE_BACKEND_NAME) as unknown) continue;
    registerNative(config.kernelName, (call) => runOnCpu(config, call));
  }
}

function runOnCpu(
  config: KernelConfig,
  { inputs, attrs, backend }: NativeKernelCall,
): TensorInfo | TensorInfo[] {
  const { kernelName, kernelFunc } = config;
  if (!backend.queues.isMeta) count(kernelName, backend);
  const cpu = cpuBackend() as CpuBackendWithTensors;
  const made = new Set<object>();
  try {
    const copies = Object.fromEntries(
      Object.entries(inputs).map(([name, input]) => [name, copyIn(cpu, backend, input, made)]),
    );
    const result: TensorInfo | TensorInfo[] = kernelFunc({
      inputs: copies as never,
      attrs,
      backend: cpu,
    });
    const outputs = [result].flat();
    for (const { dataId } of outputs) made.add(dataId);
    const copied = outputs.map((output) => copyOut(cpu, backend, output));
    return Array.isArray(result) ? copied : copied[0]!;
  } finally {
    for (const dataId of made) cpu.disposeData(dataId, true);
  }
}

function count(kernelName: string, backend: NativeBackend): void {
  backend.fallbackCounts.set(kernelName, (backend.fallbackCounts.get(kernelName) ?? 0) + 1);
  warnOnce(
    stderrLogger,
    `native fallback ${kernelName}`,
    `the native device has no kernel ${kernelName}; it runs in JavaScript, slowly`,
  );
}

/** A list of tensors (AddN, Concat, Pack) is an object with numbered names, or an array. */
function copyIn(
  cpu: CpuBackendWithTensors,
  backend: NativeBackend,
  input: TensorInfo | TensorInfo[] | undefined | null,
  made: Set<object>,
): unknown {
  if (input === undefined || input === null) return input;
  if (Array.isArray(input)) return input.map((one) => copyIn(cpu, backend, one, made));
  const copy = cpu.makeTensorInfo(input.shape, input.dtype, valuesOf(backend, input));
  made.add(copy.dataId);
  return copy;
}

/** A tensor's values; zeros where there are none, since a kernel's shapes do not depend on them. */
function valuesOf(backend: NativeBackend, { dataId, shape, dtype }: TensorInfo): TypedArray {
  if (!backend.queues.isMeta) return backend.readSync(dataId);
  return nativeArray(nativeDtype(dtype), tf.util.sizeFromShape(shape));
}

function copyOut(cpu: CpuBackend, backend: NativeBackend, output: TensorInfo): TensorInfo {
  const dtype = nativeDtype(output.dtype);
  const dataId = backend.write(cpu.readSync(output.dataId), output.shape, dtype);
  return { dataId, shape: output.shape, dtype };
}

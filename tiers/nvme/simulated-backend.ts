/**
 * @file A disk that fails as a plan says. Real files behind it, so that worker threads reach the
 * same bytes by descriptor; what a short transfer moved is really there.
 */
import { FaultInjector, shortLength, type FaultOp, type FaultPlan } from './fault-plan.js';
import type { IoBackend, IoFile } from './io-backend.js';
import { errnoFailure, shortFailure } from './io-failure.js';
import { ThreadPoolBackend } from './thread-pool-backend.js';

export class SimulatedBackend implements IoBackend {
  readonly kind = 'simulated';
  readonly #disk = new ThreadPoolBackend();
  readonly #faults: FaultInjector;
  /** Bytes of the prefixes that short transfers moved: they are not completed transfers. */
  #shortRead = 0;
  #shortWritten = 0;

  constructor(plan: FaultPlan = { rules: [] }) {
    this.#faults = new FaultInjector(plan);
  }

  get bytesRead(): number {
    return this.#disk.bytesRead - this.#shortRead;
  }

  get bytesWritten(): number {
    return this.#disk.bytesWritten - this.#shortWritten;
  }

  async open(path: string): Promise<IoFile> {
    this.#strike('open', path, 0, 0);
    return this.#disk.open(path);
  }

  async reserve(file: IoFile, byteLength: number): Promise<void> {
    this.#strike('reserve', file.path, 0, byteLength);
    await this.#disk.reserve(file, byteLength);
  }

  async read(file: IoFile, offset: number, target: Uint8Array<SharedArrayBuffer>): Promise<void> {
    const whole = target.byteLength;
    if (!this.#strike('read', file.path, offset, whole)) {
      await this.#disk.read(file, offset, target);
      return;
    }
    const moved = shortLength(whole);
    if (moved > 0) await this.#disk.read(file, offset, target.subarray(0, moved));
    this.#shortRead += moved;
    throw shortFailure({ op: 'read', path: file.path, offset, length: whole }, moved);
  }

  async write(file: IoFile, offset: number, source: Uint8Array<SharedArrayBuffer>): Promise<void> {
    const whole = source.byteLength;
    if (!this.#strike('write', file.path, offset, whole)) {
      await this.#disk.write(file, offset, source);
      return;
    }
    const moved = shortLength(whole);
    if (moved > 0) await this.#disk.write(file, offset, source.subarray(0, moved));
    this.#shortWritten += moved;
    throw shortFailure({ op: 'write', path: file.path, offset, length: whole }, moved);
  }

  async flush(file: IoFile): Promise<void> {
    this.#strike('flush', file.path, 0, 0);
    await this.#disk.flush(file);
  }

  close(file: IoFile): Promise<void> {
    return this.#disk.close(file);
  }

  dispose(): Promise<void> {
    return this.#disk.dispose();
  }

  /** Throws the planned errno, or returns whether the transfer is to be short. */
  #strike(op: FaultOp, path: string, offset: number, length: number): boolean {
    const fault = this.#faults.decide({ op, path, offset, length });
    if (fault === undefined) return false;
    if (fault === 'short') return true;
    throw errnoFailure({ op, path, offset, length }, fault);
  }
}

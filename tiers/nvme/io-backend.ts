/**
 * @file The seam under the NVMe tier: whole-request reads and writes on open files.
 *
 * Three implementations: `ring` (io_uring, O_DIRECT), `thread-pool` (portable, node:fs) and
 * `simulated` (real files, injects short transfers, EIO and ENOSPC). An implementation transfers
 * the full length or rejects once with IO_SHORT, IO_ERROR or NVME_FULL, carrying path, offset,
 * length and errno. It holds a reference to the buffer while the request is in flight.
 */

/** An open file. `fd` is valid in every thread of the process (workers drive their own rings). */
export interface IoFile {
  readonly path: string;
  /** Descriptor; the file is opened once per process. */
  readonly fd: number;
  /** Whether the page cache is bypassed; then offsets, lengths and addresses are multiples of 4096. */
  readonly direct: boolean;
}

/** Asynchronous whole-request I/O. Requests may complete in any order. */
export interface IoBackend {
  readonly kind: 'ring' | 'thread-pool' | 'simulated';
  /** Bytes of completed transfers. */
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** Opens for reading and writing, creating the file when absent; locks it exclusively.
   * @throws STORE_LOCKED when another holder has it, PATH_UNWRITABLE, IO_ERROR */
  open(path: string): Promise<IoFile>;
  /** Reserves `byteLength` bytes of space. @throws NVME_FULL */
  reserve(file: IoFile, byteLength: number): Promise<void>;
  read(file: IoFile, offset: number, target: Uint8Array<SharedArrayBuffer>): Promise<void>;
  write(file: IoFile, offset: number, source: Uint8Array<SharedArrayBuffer>): Promise<void>;
  /** Data on stable storage. Never retried when it fails. */
  flush(file: IoFile): Promise<void>;
  close(file: IoFile): Promise<void>;
  /** Rejects what is pending, closes what is open. Idempotent. */
  dispose(): Promise<void>;
}

/**
 * Synchronous counterpart for worker threads: queue requests, then wait for one by its ticket.
 * Uses descriptors that the main thread opened and locked; never opens a data file itself.
 */
export interface SyncIo {
  readonly kind: 'ring' | 'blocking';
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** Most requests in flight; `read` and `write` beyond it first wait for the oldest. */
  readonly depth: number;
  /** Starts a read; returns a ticket. */
  read(fd: number, offset: number, target: Uint8Array<SharedArrayBuffer>): number;
  /** Starts a write; returns a ticket. */
  write(fd: number, offset: number, source: Uint8Array<SharedArrayBuffer>): number;
  /** Blocks until the request is complete. @throws IO_SHORT, IO_ERROR, NVME_FULL (plain facts) */
  wait(ticket: number): void;
  dispose(): void;
}

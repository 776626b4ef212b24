/**
 * @file node:fs/promises in which the process dies at a chosen operation, as far as files can tell.
 *
 * Every call that changes files counts. The call with the number `at` is done in part (half of the
 * bytes, some files of a folder) or not at all; neither it nor any later call ever settles. What a
 * process leaves behind when it is killed is then on the disk, and the test goes on in the same
 * process.
 */
import type * as FileSystem from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';

type Real = typeof FileSystem;
type Call = (...args: never[]) => Promise<unknown>;

const NEVER = new Promise<never>(() => undefined);

/** Controls the wrapped module; one per test file. */
export class CrashingFileSystem {
  /** Calls so far. */
  count = 0;
  #at = Infinity;
  #dead: () => void = () => undefined;
  /** Raised at each revival: calls of a process that died before stay dead. */
  #life = 0;
  readonly #handles = new Set<FileHandle>();

  /**
   * Runs `process` until it ends or dies at its call number `at` (zero-based); then the file
   * system works again.
   *
   * @returns whether it died
   */
  async run(at: number, process: () => Promise<unknown>): Promise<boolean> {
    this.count = 0;
    this.#at = at;
    const death = new Promise<'dead'>((resolve) => {
      this.#dead = () => resolve('dead');
    });
    const end = await Promise.race([process(), death]);
    this.#at = Infinity;
    this.#life += 1;
    for (const handle of this.#handles) await handle.close().catch(() => undefined);
    this.#handles.clear();
    return end === 'dead';
  }

  /** The module to hand out in place of `real`. */
  wrap(real: Real): Real {
    const counted = <T extends Call>(call: T, part?: T): T =>
      this.#counted(call, part) as unknown as T;
    const open = this.#counted(real.open, undefined, (handle) => this.#wrapHandle(handle));
    return {
      ...real,
      open: open as unknown as Real['open'],
      mkdir: counted(real.mkdir as Call) as Real['mkdir'],
      rename: counted(real.rename),
      copyFile: counted(real.copyFile),
      writeFile: counted(real.writeFile, async (path, data, ...rest) =>
        real.writeFile(
          path,
          typeof data === 'string' ? data.slice(0, data.length / 2) : '',
          ...rest,
        ),
      ),
      rm: counted(real.rm, async (path) => {
        const names = await real.readdir(String(path)).catch(() => []);
        for (const name of names.filter((_, index) => index % 2 === 0)) {
          await real.rm(join(String(path), name), { recursive: true });
        }
      }),
    };
  }

  #wrapHandle(handle: FileHandle): FileHandle {
    this.#handles.add(handle);
    const calls: Record<string, Call> = {
      write: this.#counted(handle.write.bind(handle), (bytes: Uint8Array, at: number) =>
        handle.write(bytes, at, bytes.length >> 1),
      ),
      writeFile: this.#counted(handle.writeFile.bind(handle)),
      // A process that is killed loses nothing unflushed; the disk's time is saved.
      sync: this.#counted(() => Promise.resolve()),
      close: async () => {
        this.#handles.delete(handle);
        await handle.close();
      },
    };
    return new Proxy(handle, {
      get: (target, name) => {
        const own = typeof name === 'string' ? calls[name] : undefined;
        const value: unknown = own ?? Reflect.get(target, name);
        return typeof value === 'function' && own === undefined
          ? (value.bind(target) as unknown)
          : value;
      },
    });
  }

  #counted<T extends Call>(
    call: T,
    part?: T,
    wrap: (result: Awaited<ReturnType<T>>) => unknown = (result) => result,
  ): Call {
    return async (...args) => {
      const life = this.#life;
      const number = this.count++;
      if (number > this.#at) return NEVER;
      if (number === this.#at) {
        await part?.(...args).catch(() => undefined);
        this.#dead();
        return NEVER;
      }
      const result = (await call(...args)) as Awaited<ReturnType<T>>;
      return life === this.#life ? wrap(result) : NEVER;
    };
  }
}

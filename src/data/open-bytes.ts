/**
 * @file The bytes of a file or pipe as a stream that can always be ended.
 *
 * To open a named pipe waits for its writer, and to read any pipe waits for bytes; on Node's thread
 * pool neither can be broken off, and the process cannot exit meanwhile. So pipes are opened without
 * waiting, and read when the event loop says that there is something.
 */
import { closeSync, constants, createReadStream, fstatSync, openSync } from 'node:fs';
import { Socket } from 'node:net';
import { addAbortSignal, type Readable } from 'node:stream';

/** Opens without waiting; has no effect on files. Windows lacks it. */
const NON_BLOCKING = (constants.O_NONBLOCK as number | undefined) ?? 0;

/**
 * Opens `path`; whoever reads the stream to its end, breaks off or destroys it closes it.
 *
 * @param signal ends the stream with an error
 * @throws the error of the system
 */
export function openBytes(path: string, signal?: AbortSignal): Readable {
  const fd = openSync(path, constants.O_RDONLY | NON_BLOCKING);
  try {
    const stream = fstatSync(fd).isFIFO()
      ? new Socket({ fd, readable: true, writable: false })
      : createReadStream(path, { fd });
    return signal === undefined ? stream : addAbortSignal(signal, stream);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

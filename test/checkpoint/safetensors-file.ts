/**
 * @file Builds safetensors bytes by hand, valid or not: the writer under test is not its own oracle.
 */

/** Length field, then `json` as it is, then `data`. */
export function fileBytes(json: string, data: Uint8Array, headerBytes?: bigint): Uint8Array {
  const text = new TextEncoder().encode(json);
  const file = new Uint8Array(8 + text.length + data.length);
  new DataView(file.buffer).setBigUint64(0, headerBytes ?? BigInt(text.length), true);
  file.set(text, 8);
  file.set(data, 8 + text.length);
  return file;
}

/** Header JSON of one F32 tensor `x` of shape [2, 3], with some fields replaced. */
export function headerOfX(changes: Record<string, unknown> = {}): string {
  return JSON.stringify({
    x: { dtype: 'F32', shape: [2, 3], data_offsets: [0, 24], ...changes },
  });
}

/** A valid file of float32 tensors by name; values count up from 0. */
export function floatFile(shapes: Readonly<Record<string, readonly number[]>>): Uint8Array {
  let begin = 0;
  const fields = Object.entries(shapes).map(([name, shape]) => {
    const end = begin + 4 * shape.reduce((a, b) => a * b, 1);
    const field = [name, { dtype: 'F32', shape, data_offsets: [begin, end] }] as const;
    begin = end;
    return field;
  });
  const values = Float32Array.from({ length: begin / 4 }, (_, index) => index);
  return fileBytes(JSON.stringify(Object.fromEntries(fields)), new Uint8Array(values.buffer));
}

/**
 * @file Copies stored elements into float32 memory, exactly.
 */
import { assert, SpillwayError } from '../../core/errors.js';
import { elementBytes, type ElementType } from '../../core/types.js';
import { kernels } from '../native/binding.js';

/**
 * Writes the elements in `source` to `target` from element `offset` on. 16-bit floats are widened
 * exactly; float32 bits are copied, payloads of NaN included. Returns the number of elements.
 *
 * @throws INTERNAL when they do not fit, or are no floating-point type
 */
export function decodeElements(
  target: Float32Array,
  offset: number,
  source: Uint8Array,
  type: ElementType,
): number {
  const length = source.byteLength / elementBytes(type);
  assert(
    Number.isInteger(length) && offset >= 0 && offset + length <= target.length,
    'the elements lie inside the tensor',
    { offset, sourceBytes: source.byteLength, tensorLength: target.length },
  );
  switch (type) {
    case 'float32':
      bytesOf(target).set(source, offset * 4);
      break;
    case 'bfloat16':
      kernels().bf16ToF32(halves(source), target.subarray(offset, offset + length));
      break;
    case 'float16':
      kernels().f16ToF32(halves(source), target.subarray(offset, offset + length));
      break;
    case 'int32':
    case 'uint16':
      throw new SpillwayError('INTERNAL', `elements of type ${type} are no tensor of float32`);
  }
  return length;
}

function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/** The 16-bit words in `source`; copied first when they do not lie on an even address. */
function halves(source: Uint8Array): Uint16Array {
  const even = source.byteOffset % 2 === 0 ? source : source.slice();
  return new Uint16Array(even.buffer, even.byteOffset, even.byteLength / 2);
}

/**
 * @file `dtype` and `bf16` say one thing: the element type of the weights that compute reads.
 *
 * `bf16: false` only does not ask for bfloat16; it contradicts nothing.
 */
import { SpillwayError } from '../../core/errors.js';
import type { ConfigKeyName } from './schema.js';
import type { ConfigValues } from './train-config.js';

/**
 * The element type.
 *
 * @param isGiven whether someone wrote that key
 * @throws CONFIG_INVALID when bf16 is true and dtype was given as something else
 */
export function resolveDtype(
  values: Pick<ConfigValues, 'dtype' | 'bf16'>,
  isGiven: (key: ConfigKeyName) => boolean,
): NonNullable<ConfigValues['dtype']> {
  if (values.bf16 !== true) return values.dtype!;
  if (isGiven('dtype') && values.dtype !== 'bfloat16') {
    throw new SpillwayError(
      'CONFIG_INVALID',
      `bf16: true and dtype: ${values.dtype} contradict each other; keep one`,
      { keys: ['bf16', 'dtype'] },
    );
  }
  return 'bfloat16';
}

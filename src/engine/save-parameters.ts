/**
 * @file Streams parameters (and AdamW's states) from their tiers into a Hugging Face folder.
 */
import { SpillwayError } from '../../core/errors.js';
import { saveModelFolder } from '../checkpoint/save-model.js';
import type { TensorToWrite } from '../checkpoint/safetensors-writer.js';
import type { StateName } from '../../core/types.js';
import type { Model } from '../model/block.js';
import { statesOf } from '../plan/placement.js';
import type { ParamAddress } from '../plan/parameter-layout.js';
import type { ParameterStore } from './parameter-store.js';

/** Options of `Engine.save`. */
export interface SaveOptions {
  /** `replace` (default): the folder becomes exactly this save. `into`: its files join the folder. */
  readonly mode?: 'replace' | 'into';
  /** Write `optimizer.safetensors` too. Default false. */
  readonly optimizer?: boolean;
  /** Bytes of data per file, at least 1; beyond that there are several. Default: no limit. */
  readonly maxShardSize?: number;
  /** Further JSON files by name. */
  readonly jsonFiles?: Readonly<Record<string, unknown>>;
}

/**
 * Saves the model; weights are what compute reads: float32, or bfloat16 in a bfloat16 run.
 *
 * @throws OUTPUT_FULL, PATH_UNWRITABLE, IO_ERROR, CONFIG_INVALID; what was there before is unharmed
 */
export async function saveParameters(
  model: Model,
  store: ParameterStore,
  folder: string,
  options: SaveOptions,
): Promise<void> {
  const { maxShardSize } = options;
  if (maxShardSize !== undefined && !(Number.isSafeInteger(maxShardSize) && maxShardSize >= 1)) {
    const message = `maxShardSize is ${maxShardSize}; give a whole number of bytes, at least 1`;
    throw new SpillwayError('CONFIG_INVALID', message, { option: 'maxShardSize' });
  }
  const addresses = [...store.layout.params.values()];
  const tensor = (address: ParamAddress, state: StateName, name: string): TensorToWrite => {
    const { shape } = address.spec;
    const read = (offset: number, target: Float32Array | Uint16Array): Promise<void> =>
      store.copyState(address.spec.name, state, offset, target);
    if (state === 'master_lo') return { name, shape, dtype: 'U16', read };
    if (state === 'param' && store.dtype === 'bfloat16')
      return { name, shape, dtype: 'BF16', read };
    return { name, shape, dtype: 'F32', read };
  };
  const optimizer = addresses.flatMap((address) =>
    statesOf(store.group(address), store.dtype)
      .filter((state) => state !== 'param' && state !== 'grad')
      .map((state) => tensor(address, state, `${address.spec.name}.${state}`)),
  );
  await saveModelFolder({
    folder,
    mode: options.mode ?? 'replace',
    params: addresses.map((address) => tensor(address, 'param', address.spec.name)),
    ...(options.optimizer === true ? { optimizer } : {}),
    ...(maxShardSize === undefined ? {} : { maxShardBytes: maxShardSize }),
    ...(model.writeCompanions === undefined
      ? {}
      : { writeCompanions: (target: string) => model.writeCompanions!(target) }),
    ...(options.jsonFiles === undefined ? {} : { jsonFiles: options.jsonFiles }),
  });
}

/**
 * @file Saves the model of one folder into another, byte for byte, without an engine.
 */
import { assert } from '../../core/errors.js';
import type { TensorToWrite } from './safetensors-writer.js';
import { saveModelFolder } from './save-model.js';
import { openTensorFiles, type StoredTensor } from './tensor-files.js';

/** What to save from where. */
export interface RepublishRequest {
  /** A folder that `saveModelFolder` wrote. */
  readonly from: string;
  /** Where its files join what is there. */
  readonly into: string;
  readonly maxShardBytes: number;
  /** Writes config.json, tokenizer and other files into the folder it is given. */
  readonly writeCompanions: (folder: string) => Promise<void>;
}

/**
 * Copies the weights, in their order and dtype, in pieces of bounded size.
 *
 * @throws MODEL_NOT_FOUND, CHECKPOINT_CORRUPT; what `saveModelFolder` throws
 */
export async function republishModel(request: RepublishRequest): Promise<void> {
  const files = await openTensorFiles(request.from, 'model');
  try {
    await saveModelFolder({
      folder: request.into,
      mode: 'into',
      params: [...files.tensors.values()].map(toWrite),
      maxShardBytes: request.maxShardBytes,
      writeCompanions: request.writeCompanions,
    });
  } finally {
    await files.close();
  }
}

function toWrite({ file, entry }: StoredTensor): TensorToWrite {
  const { name, shape, dtype } = entry;
  if (dtype === 'F32') {
    return {
      name,
      shape,
      dtype,
      read: (offset, target) => file.readElements(entry, offset, target),
    };
  }
  assert(dtype === 'BF16' || dtype === 'F16', 'weights are saved as F32, BF16 or F16', { dtype });
  return { name, shape, dtype, read: (offset, target) => file.readBits(entry, offset, target) };
}

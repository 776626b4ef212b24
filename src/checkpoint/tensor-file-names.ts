/**
 * @file Names of the files that hold tensors: one file, or shards and the index that lists them.
 */

/** `model`: weights, as transformers names them. `optimizer`: AdamW's states, named likewise. */
export type TensorStem = 'model' | 'optimizer';

/** Digits of a shard's number and of the count. */
const SHARD_DIGITS = 5;

/** Every name that a save can give to a file of tensors or to its index; other writers' too. */
const SAVED_TENSOR_FILE =
  /^(model|optimizer)(-\d{5,}-of-\d{5,}\.safetensors|\.safetensors(\.index\.json)?)$/;

/** The file that holds everything. */
export function singleFileName(stem: TensorStem): string {
  return `${stem}.safetensors`;
}

/** The index of several files. */
export function indexFileName(stem: TensorStem): string {
  return `${stem}.safetensors.index.json`;
}

/** Shard `index` (zero-based) of `count`: `model-00001-of-00003.safetensors` is the first of 3. */
export function shardFileName(stem: TensorStem, index: number, count: number): string {
  const digits = (value: number): string => String(value).padStart(SHARD_DIGITS, '0');
  return `${stem}-${digits(index + 1)}-of-${digits(count)}.safetensors`;
}

/** Whether a file of this name belongs to a save: its weights, its optimizer states, an index. */
export function isSavedTensorFile(name: string): boolean {
  return SAVED_TENSOR_FILE.test(name);
}

/** Whether it is an index. */
export function isIndexFile(name: string): boolean {
  return isSavedTensorFile(name) && name.endsWith('.index.json');
}

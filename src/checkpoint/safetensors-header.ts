/**
 * @file The safetensors header: 8 bytes of little-endian length N, then N bytes of JSON.
 *
 *   { "__metadata__": {string: string}, "<name>": { dtype, shape, data_offsets: [begin, end] } }
 *
 * Offsets count from the end of the header. The byte ranges cover the rest of the file exactly:
 * no overlap, no hole, nothing behind the last one. Pure functions, no I/O; memory is bounded by
 * the tensors that the header lists. Source: the format's description and `Metadata::validate` of
 * github.com/huggingface/safetensors.
 */
import { isNestedDeeper } from '../../core/json-depth.js';
import { findDuplicateKey } from '../../core/json-duplicate-keys.js';
import { corrupt, quoteName } from './file-errors.js';
import { isJsonObject, type JsonObject } from './json-object.js';
import { topLevelMembers, utf8Text } from './top-level-members.js';

/** Bits per element of every dtype that the format knows. */
const DTYPE_BITS = {
  BOOL: 8,
  F4: 4,
  F6_E2M3: 6,
  F6_E3M2: 6,
  U8: 8,
  I8: 8,
  F8_E5M2: 8,
  F8_E4M3: 8,
  F8_E8M0: 8,
  F8_E4M3FNUZ: 8,
  F8_E5M2FNUZ: 8,
  I16: 16,
  U16: 16,
  F16: 16,
  BF16: 16,
  I32: 32,
  U32: 32,
  F32: 32,
  C64: 64,
  F64: 64,
  I64: 64,
  U64: 64,
} as const satisfies Record<string, number>;

/** Element type of a tensor in a safetensors file. */
export type SafetensorsDtype = keyof typeof DTYPE_BITS;

/** Longest header that readers accept, in bytes: the format's own limit. */
export const MAX_HEADER_BYTES = 100_000_000;

/** Longest description of one tensor: hundreds of dimensions, or fields that we do not read. */
const MAX_INFO_BYTES = 16_384;

const METADATA_KEY = '__metadata__';

/** Dimensions of a shape that an error repeats. */
const SHOWN_DIMENSIONS = 8;

/** Bytes of the length field in front of the header. */
export const LENGTH_BYTES = 8;

/** One tensor of a file. `begin` and `end` are bytes from the start of the file. */
export interface TensorEntry {
  readonly name: string;
  readonly dtype: SafetensorsDtype;
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
}

/** A file's tensors in the order of their bytes, and its free-form metadata. */
export interface SafetensorsHeader {
  readonly entries: readonly TensorEntry[];
  readonly metadata: Readonly<Record<string, string>>;
}

/** Elements of a tensor of `shape`; 1 for a scalar. */
export function elementCount(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** Bits per element of `dtype`. */
export function dtypeBits(dtype: SafetensorsDtype): number {
  return DTYPE_BITS[dtype];
}

/**
 * Header length in bytes from the first 8 bytes of a file of `fileBytes` bytes.
 *
 * @throws CHECKPOINT_CORRUPT when it exceeds the file or the format's limit
 */
export function parseHeaderLength(first: Uint8Array, fileBytes: number, path: string): number {
  if (first.length < LENGTH_BYTES) {
    throw corrupt(path, 'the file is shorter than the 8 bytes of its header length', { fileBytes });
  }
  const view = new DataView(first.buffer, first.byteOffset, LENGTH_BYTES);
  const headerBytes = Number(view.getBigUint64(0, true));
  if (headerBytes > MAX_HEADER_BYTES) {
    throw corrupt(path, 'the header length exceeds the limit of the format', {
      headerBytes,
      limitBytes: MAX_HEADER_BYTES,
    });
  }
  if (LENGTH_BYTES + headerBytes > fileBytes) {
    throw corrupt(path, 'the header reaches beyond the end of the file', {
      headerBytes,
      fileBytes,
    });
  }
  return headerBytes;
}

/**
 * The tensors of a file from its header's JSON, fully checked against the file's size.
 *
 * @param json the header's bytes, without the length field
 * @param fileBytes size of the whole file
 * @throws CHECKPOINT_CORRUPT naming the fact
 */
export function parseHeader(json: Uint8Array, fileBytes: number, path: string): SafetensorsHeader {
  const refuse = (fact: string, cause?: unknown): Error =>
    corrupt(path, `the header ${fact}`, { headerBytes: json.length }, cause);
  const dataStart = LENGTH_BYTES + json.length;
  let metadata: Readonly<Record<string, string>> = {};
  const entries: TensorEntry[] = [];
  const names = new Set<string>();
  for (const { key, value } of topLevelMembers(json, refuse)) {
    const name = parseUnique(key, refuse) as string;
    if (names.has(name)) throw refuse(`holds the key ${quoteName(name)} twice`);
    names.add(name);
    if (name === METADATA_KEY) metadata = parseMetadata(value, path, refuse);
    else entries.push(parseEntry(name, parseInfo(name, value, path, refuse), dataStart, path));
  }
  entries.sort((a, b) => a.begin - b.begin || a.end - b.end);
  checkCoverage(entries, dataStart, fileBytes, path);
  return { entries, metadata };
}

/** The value that `text` describes; no key stands twice in an object. */
function parseUnique(text: string, refuse: (fact: string, cause?: unknown) => Error): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw refuse('is not valid JSON', error);
  }
  const duplicate = findDuplicateKey(text);
  if (duplicate !== undefined) throw refuse(`holds the key ${quoteName(duplicate)} twice`);
  return value;
}

function parseMetadata(
  bytes: Uint8Array,
  path: string,
  refuse: (fact: string, cause?: unknown) => Error,
): Readonly<Record<string, string>> {
  const text = utf8Text(bytes);
  // One level, checked before it is parsed: a map of strings takes as much memory as its text.
  const value = isNestedDeeper(text, 1) ? undefined : parseUnique(text, refuse);
  if (!isJsonObject(value) || Object.values(value).some((item) => typeof item !== 'string')) {
    throw corrupt(path, `the header field ${METADATA_KEY} is not an object of strings`);
  }
  return value as Record<string, string>;
}

/** What describes a tensor, as an object. */
function parseInfo(
  name: string,
  bytes: Uint8Array,
  path: string,
  refuse: (fact: string, cause?: unknown) => Error,
): JsonObject {
  const tensor = `tensor ${quoteName(name)}`;
  if (bytes.length > MAX_INFO_BYTES) {
    throw corrupt(path, `${tensor} is described by more text than a tensor needs`, {
      infoBytes: bytes.length,
      limitBytes: MAX_INFO_BYTES,
    });
  }
  const value = parseUnique(utf8Text(bytes), refuse);
  if (!isJsonObject(value)) throw corrupt(path, `${tensor} is not described by an object`);
  return value;
}

function parseEntry(name: string, value: JsonObject, dataStart: number, path: string): TensorEntry {
  const tensor = `tensor ${quoteName(name)}`;
  const dtype = value['dtype'];
  if (!isDtype(dtype)) {
    const shown = typeof dtype === 'string' ? quoteName(dtype) : `of type ${typeof dtype}`;
    throw corrupt(path, `${tensor} has an unknown dtype ${shown}`);
  }
  const shape = parseShape(value['shape'], tensor, path);
  const offsets = value['data_offsets'];
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isCount)) {
    throw corrupt(path, `${tensor} has no pair of non-negative integers as data_offsets`);
  }
  const [begin, end] = offsets as [number, number];
  if (end < begin) {
    throw corrupt(path, `${tensor} ends before it begins`, { begin, end });
  }
  const bits = elementCount(shape) * DTYPE_BITS[dtype];
  if (!Number.isSafeInteger(bits) || bits !== (end - begin) * 8) {
    throw corrupt(path, `${tensor} has another length than its dtype and shape need`, {
      dtype,
      shape: shape.slice(0, SHOWN_DIMENSIONS).map(String),
      neededBytes: bits / 8,
      byteLength: end - begin,
    });
  }
  return { name, dtype, shape, begin: dataStart + begin, end: dataStart + end };
}

function parseShape(value: unknown, tensor: string, path: string): readonly number[] {
  if (!Array.isArray(value) || !value.every(isCount)) {
    throw corrupt(path, `${tensor} has a shape that is not a list of non-negative integers`);
  }
  let product = 1;
  for (const size of value) {
    product *= size;
    if (!Number.isSafeInteger(product)) {
      throw corrupt(path, `${tensor} has a shape with more than 2^53 elements`);
    }
  }
  return value;
}

/** The ranges, sorted, must follow each other from the header's end to the file's end. */
function checkCoverage(
  entries: readonly TensorEntry[],
  dataStart: number,
  fileBytes: number,
  path: string,
): void {
  let at = dataStart;
  for (const { name, begin, end } of entries) {
    const tensor = `tensor ${quoteName(name)}`;
    const facts = { begin, end, fileBytes };
    if (end > fileBytes) throw corrupt(path, `${tensor} reaches beyond the end of the file`, facts);
    if (begin < at) throw corrupt(path, `${tensor} overlaps another tensor`, facts);
    if (begin > at) throw corrupt(path, `unused bytes lie in front of ${tensor}`, facts);
    at = end;
  }
  if (at !== fileBytes) {
    throw corrupt(path, 'unused bytes lie behind the last tensor', {
      unusedBytes: fileBytes - at,
      fileBytes,
    });
  }
}

function isDtype(value: unknown): value is SafetensorsDtype {
  return typeof value === 'string' && Object.hasOwn(DTYPE_BITS, value);
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

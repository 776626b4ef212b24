/**
 * @file Which tensor of a checkpoint holds which parameter of a model.
 *
 * The model says under which names a file may hold a parameter (`transformer.h.0…` or `h.0…`) and
 * which tensors are none (attention masks, rotary frequencies, the second name of a tied matrix);
 * these load silently. Everything else that does not fit is listed in one error.
 */
import { SpillwayError } from '../../core/errors.js';
import type { ParamName, ParamSpec } from '../model/block.js';
import { quoteName } from './file-errors.js';
import type { StoredTensor } from './tensor-files.js';
import type { SafetensorsDtype } from './safetensors-header.js';

/** Names that a mismatch lists per kind; the rest is counted. */
const LISTED = 8;

/** Element types that weights may have. */
const WEIGHT_DTYPES: ReadonlySet<SafetensorsDtype> = new Set<SafetensorsDtype>([
  'F32',
  'F16',
  'BF16',
]);

/** What a model knows about the names in its files. */
export interface FileNaming {
  /** Names under which a file may hold the parameter, best first. */
  fileNames(param: ParamName): readonly string[];
  /** Whether the tensor of that name is known to be no parameter. */
  isNonParameter(fileName: string): boolean;
}

/**
 * The tensor of every parameter in `specs`.
 *
 * @param tensors by their names in the files
 * @param path the checkpoint, for messages
 * @throws CHECKPOINT_MISMATCH that lists missing, unexpected and wrong-shaped tensors and those
 *   of a dtype that weights do not have
 */
export function matchParameters(
  specs: readonly ParamSpec[],
  tensors: ReadonlyMap<string, StoredTensor>,
  path: string,
  naming: FileNaming,
): Map<ParamName, StoredTensor> {
  const matched = new Map<ParamName, StoredTensor>();
  const used = new Set<string>();
  const missing: string[] = [];
  const wrongShape: string[] = [];
  const wrongDtype: string[] = [];
  for (const spec of specs) {
    const name = naming.fileNames(spec.name).find((candidate) => tensors.has(candidate));
    const stored = name === undefined ? undefined : tensors.get(name);
    if (name === undefined || stored === undefined) {
      missing.push(spec.name);
      continue;
    }
    used.add(name);
    const { shape, dtype } = stored.entry;
    if (!sameShape(shape, spec.shape)) {
      wrongShape.push(`${name} [${shape.join(', ')}] for [${spec.shape.join(', ')}]`);
    } else if (!WEIGHT_DTYPES.has(dtype)) wrongDtype.push(`${name} ${dtype}`);
    else matched.set(spec.name, stored);
  }
  const unexpected = [...tensors.keys()].filter(
    (name) => !used.has(name) && !naming.isNonParameter(name),
  );
  refuse(path, [
    { label: 'missing', fact: 'missingCount', names: missing },
    { label: 'unexpected', fact: 'unexpectedCount', names: unexpected.sort() },
    { label: 'of another shape', fact: 'wrongShapeCount', names: wrongShape },
    { label: 'of an unreadable dtype', fact: 'wrongDtypeCount', names: wrongDtype },
  ]);
  return matched;
}

function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, index) => size === b[index]);
}

interface MismatchKind {
  readonly label: string;
  /** Name of the fact that carries the count. */
  readonly fact: string;
  readonly names: readonly string[];
}

function refuse(path: string, kinds: readonly MismatchKind[]): void {
  const found = kinds.filter(({ names }) => names.length > 0);
  if (found.length === 0) return;
  const lists = found.map(({ label, names }) => {
    const listed = names.slice(0, LISTED).map((name) => quoteName(name));
    const rest = names.length > LISTED ? ` and ${names.length - LISTED} more` : '';
    return `${names.length} ${label}: ${listed.join(', ')}${rest}`;
  });
  throw new SpillwayError(
    'CHECKPOINT_MISMATCH',
    `the weights in ${path} do not fit config.json (${lists.join('; ')}); use the config.json that belongs to them`,
    Object.fromEntries(found.map(({ fact, names }) => [fact, names.length])),
  );
}

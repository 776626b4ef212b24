/**
 * @file Rotary positions from config.json, in the spelling of transformers 4 (`rope_theta`,
 * `rope_scaling`) and 5 (`rope_parameters`).
 */
import { z } from 'zod';
import { SpillwayError } from '../../core/errors.js';
import { cut, shown, type JsonObject } from './config-rules.js';
import { makeRope, yarnAttentionFactor, type Rope, type RopeScaling } from './rope.js';
import type { SequenceLimit } from './sequence-limit.js';

/** `rope_theta` where it is absent. */
const DEFAULT_THETA = 10_000;

const size = z.int().positive();
const positive = z.number().positive();

/** Fields of every type: `finetuned` changes nothing, the original length only llama3 and yarn. */
const SHARED = {
  rope_type: z.string().optional(),
  type: z.string().optional(),
  rope_theta: positive.optional(),
  partial_rotary_factor: z.literal(1).optional(),
  original_max_position_embeddings: size.optional(),
  finetuned: z.boolean().optional(),
};

const TYPES = {
  default: z.strictObject(SHARED),
  linear: z.strictObject({ ...SHARED, factor: positive }),
  dynamic: z.strictObject({ ...SHARED, factor: positive }),
  llama3: z.strictObject({
    ...SHARED,
    factor: positive,
    low_freq_factor: positive,
    high_freq_factor: positive,
  }),
  yarn: z.strictObject({
    ...SHARED,
    factor: positive,
    attention_factor: positive.optional(),
    beta_fast: z.number().nonnegative().optional(),
    beta_slow: z.number().nonnegative().optional(),
    mscale: z.number().optional(),
    mscale_all_dim: z.number().optional(),
    truncate: z.boolean().default(true),
  }),
} as const;

type RopeType = keyof typeof TYPES;

/** What the rest of the configuration says. */
export interface RopeContext {
  readonly headWidth: number;
  /** `max_position_embeddings` */
  readonly positions: number;
  /** Whether transformers knows no other type for the family. */
  readonly defaultOnly: boolean;
}

/** The field that describes the frequencies, and its value without nulls. */
interface Description {
  readonly field: 'rope_scaling' | 'rope_parameters';
  readonly type: string;
  readonly values: JsonObject;
}

/**
 * The model's rotary positions, and the length beyond which they are not computed (type dynamic,
 * whose frequencies change with the sequence from `max_position_embeddings` on).
 *
 * @throws MODEL_UNSUPPORTED naming a type or a field that we do not compute; MODEL_CONFIG_INVALID
 *   naming a missing or invalid one
 */
export function ropeFromConfig(
  config: JsonObject,
  context: RopeContext,
): { rope: Rope; limits: SequenceLimit[] } {
  const { headWidth, positions } = context;
  const described = describe(config, context);
  const { field, type } = described;
  if (!Object.hasOwn(TYPES, type) || (context.defaultOnly && type !== 'default')) {
    throw new SpillwayError(
      'MODEL_UNSUPPORTED',
      `config.json: ${field} is of type ${shown(type)}, which is not supported; supported are ${context.defaultOnly ? 'default' : Object.keys(TYPES).join(', ')}`,
      { field, type },
    );
  }
  const outer = config['original_max_position_embeddings'];
  const { theta, scaling } = scalingOf(described, {
    theta: parse(z.number().positive(), config['rope_theta'] ?? DEFAULT_THETA, 'rope_theta'),
    originalPositions:
      outer === undefined || outer === null
        ? undefined
        : parse(size, outer, 'original_max_position_embeddings'),
    positions,
  });
  const rope = makeRope(headWidth, theta, scaling);
  if (!rope.inverseFrequencies.every((frequency) => Number.isFinite(frequency))) {
    throw invalid(field, 'gives frequencies that are no numbers; correct it', { type, theta });
  }
  const limit = { field: `max_position_embeddings (rope type ${type})`, length: positions };
  return { rope, limits: type === 'dynamic' ? [limit] : [] };
}

/** Finds the description in either spelling; both only where they agree. */
function describe(config: JsonObject, { positions }: RopeContext): Description {
  const [scaling, parameters] = ['rope_scaling', 'rope_parameters'].map((name) => {
    const value = config[name] ?? {};
    if (typeof value === 'object' && !Array.isArray(value)) return value as JsonObject;
    throw invalid(name, 'must be an object; correct it');
  }) as [JsonObject, JsonObject];
  const given = Object.keys(scaling).length > 0;
  if (given && Object.keys(parameters).length > 0) {
    const text = (value: JsonObject): string => JSON.stringify(Object.entries(value).sort());
    if (text(scaling) !== text(parameters)) {
      throw invalid('rope_scaling', 'and rope_parameters differ; keep one of them');
    }
  }
  const raw = given ? scaling : parameters;
  const values = Object.fromEntries(Object.entries(raw).filter(([, value]) => value !== null));
  const field = given ? 'rope_scaling' : 'rope_parameters';
  const type = values['rope_type'] ?? values['type'] ?? 'default';
  if (typeof type !== 'string' || (values['type'] ?? type) !== type) {
    throw invalid(field, 'names two types, or none that is a text; correct it');
  }
  // A factor that is null is the ratio of the lengths, as DeepSeek's configurations have it.
  const original = config['original_max_position_embeddings'] ?? values[ORIGINAL];
  if (type === 'yarn' && raw['factor'] === null && typeof original === 'number') {
    return { field, type, values: { ...values, factor: positions / original } };
  }
  return { field, type, values };
}

const ORIGINAL = 'original_max_position_embeddings';

interface Outer {
  readonly theta: number;
  /** Goes before the one in the description, as in transformers. */
  readonly originalPositions: number | undefined;
  readonly positions: number;
}

function scalingOf(
  { field, type, values }: Description,
  outer: Outer,
): { theta: number; scaling: RopeScaling } {
  const name = type as RopeType;
  const shared = { theta: outer.theta };
  const lengths = (own: number | undefined): number =>
    outer.originalPositions ?? own ?? outer.positions;
  switch (name) {
    case 'default':
    case 'dynamic': {
      const { rope_theta: theta = shared.theta } = parse(TYPES[name], values, field);
      return { theta, scaling: { type: 'default' } };
    }
    case 'linear': {
      const { rope_theta: theta = shared.theta, factor } = parse(TYPES.linear, values, field);
      return { theta, scaling: { type: 'linear', factor } };
    }
    case 'llama3': {
      const fields = parse(TYPES.llama3, values, field);
      const { low_freq_factor: lowFreqFactor, high_freq_factor: highFreqFactor } = fields;
      if (highFreqFactor <= lowFreqFactor) {
        throw invalid(field, 'needs high_freq_factor above low_freq_factor; correct them');
      }
      const originalPositions = lengths(fields.original_max_position_embeddings);
      const { rope_theta: theta = shared.theta, factor } = fields;
      const scaling = { lowFreqFactor, highFreqFactor, originalPositions };
      return { theta, scaling: { type: 'llama3', factor, ...scaling } };
    }
    case 'yarn': {
      const fields = parse(TYPES.yarn, values, field);
      const { rope_theta: theta = shared.theta, factor, truncate } = fields;
      return {
        theta,
        scaling: {
          type: 'yarn',
          factor,
          attentionFactor:
            fields.attention_factor ??
            yarnAttentionFactor(factor, fields.mscale, fields.mscale_all_dim),
          // 0 counts as absent, as in transformers.
          betaFast: fields.beta_fast || 32,
          betaSlow: fields.beta_slow || 1,
          originalPositions: lengths(fields.original_max_position_embeddings),
          truncate,
        },
      };
    }
    default:
      return name satisfies never;
  }
}

function parse<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  field: string,
): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  const name = cut([field, ...issue.path].join('.'));
  if (issue.code === 'unrecognized_keys' || name.endsWith('.partial_rotary_factor')) {
    const names = issue.code === 'unrecognized_keys' ? issue.keys.join(', ') : name;
    throw new SpillwayError(
      'MODEL_UNSUPPORTED',
      `config.json: ${field} has ${cut(names)}, which its type does not support; use a model without it`,
      { field },
    );
  }
  throw invalid(name, `is missing or invalid: ${cut(issue.message)}; correct it`);
}

function invalid(
  field: string,
  fact: string,
  facts: Readonly<Record<string, string | number>> = {},
): SpillwayError {
  return new SpillwayError('MODEL_CONFIG_INVALID', `config.json: ${field} ${fact}`, {
    field,
    ...facts,
  });
}

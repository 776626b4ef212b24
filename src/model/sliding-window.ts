/**
 * @file Which layers of a model attend in a sliding window, and how long it is.
 *
 * A window is not computed: up to its own length it hides nothing, and longer sequences are refused
 * (sequence-limit.ts).
 */
import { SpillwayError } from '../../core/errors.js';
import { shown, type JsonObject } from './config-rules.js';
import type { WindowRule } from './llama-families.js';

/** Fields of config.json about windows, null counted as absent. */
export interface WindowFields {
  readonly num_hidden_layers: number;
  readonly sliding_window?: number | undefined;
  readonly use_sliding_window: boolean;
  readonly max_window_layers: number;
  readonly layer_types?: readonly string[] | undefined;
}

const FULL = 'full_attention';
const SLIDING = 'sliding_attention';

/**
 * The window of each layer in tokens, or undefined where the layer attends to all.
 *
 * @param config as read: a null `sliding_window` is none, an absent one the family's default
 * @throws MODEL_UNSUPPORTED or MODEL_CONFIG_INVALID naming `layer_types`
 */
export function windowsOf(
  config: JsonObject,
  fields: WindowFields,
  rule: WindowRule,
): (number | undefined)[] {
  const layers = fields.num_hidden_layers;
  if (rule.layers === 'none') return Array<undefined>(layers).fill(undefined);
  const named = fields.sliding_window ?? rule.length;
  const window = config['sliding_window'] === null ? undefined : named;
  if (rule.layers === 'every') return Array<number | undefined>(layers).fill(window);
  const active = fields.use_sliding_window ? window : undefined;
  const types = fields.layer_types ?? typesFrom(fields.max_window_layers, layers, active);
  checkTypes(types, layers, active);
  return types.map((type) => (type === SLIDING ? active : undefined));
}

function typesFrom(first: number, layers: number, window: number | undefined): string[] {
  return Array.from({ length: layers }, (_, index) =>
    window !== undefined && index >= first ? SLIDING : FULL,
  );
}

function checkTypes(types: readonly string[], layers: number, window: number | undefined): void {
  const other = types.find((type) => type !== FULL && type !== SLIDING);
  if (other !== undefined) {
    throw new SpillwayError(
      'MODEL_UNSUPPORTED',
      `config.json: layer_types has ${shown(other)}, which is not supported; use a model with ${FULL} and ${SLIDING}`,
      { field: 'layer_types' },
    );
  }
  if (types.length === layers && (window !== undefined || !types.includes(SLIDING))) return;
  throw new SpillwayError(
    'MODEL_CONFIG_INVALID',
    types.length === layers
      ? `config.json: layer_types has ${SLIDING}, but no sliding_window is in use; correct one of them`
      : 'config.json: layer_types must have one entry per layer; correct it',
    { field: 'layer_types', entries: types.length, num_hidden_layers: layers },
  );
}

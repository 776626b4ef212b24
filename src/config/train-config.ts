/**
 * @file The configuration of one training run, complete and typed: what the schema's keys become.
 *
 * Field names are the keys in camelCase, nested where the key has a dot. Frozen, deeply.
 */
import type { ConfigKeyName, ConfigValueOf } from './schema.js';

type Camel<S extends string> = S extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<Camel<Tail>>}`
  : S;

type Frozen<T> = T extends (infer Item)[] ? readonly Item[] : T;

type FlatName = Exclude<ConfigKeyName, `${string}.${string}`>;

/** Lowest tier of a kind of state: none (device), cpu (host), nvme, or chosen by the planner. */
export type OffloadDevice = ConfigValueOf<'offload_param.device'>;

/** Keys of one group, such as `offload_param.device`, by their part after the dot. */
type Group<P extends string> = {
  readonly [K in ConfigKeyName as K extends `${P}.${infer Field}` ? Camel<Field> : never]: Frozen<
    ConfigValueOf<K>
  >;
};

/**
 * Every key of docs/CONFIG.md in camelCase. `deviceMemory`, `hostMemory` and `nvmeMemory` are
 * bytes, defaults already applied; `nvmeMemory` is 0 when `nvmePath` is empty. Paths are as
 * written, relative to the working directory. Keys without value and default are undefined.
 */
export type TrainConfig = {
  readonly [K in FlatName as Camel<K>]: Frozen<ConfigValueOf<K>>;
} & {
  readonly offloadParam: Group<'offload_param'>;
  readonly offloadOptimizer: Group<'offload_optimizer'>;
  readonly throttle: Group<'throttle'>;
  readonly lrSchedulerKwargs: Group<'lr_scheduler_kwargs'>;
};

/** Key by key as a file or flags gave them, parsed; the budgets may still be missing. */
export type ConfigValues = {
  readonly [K in ConfigKeyName]: ConfigValueOf<K> | undefined;
};

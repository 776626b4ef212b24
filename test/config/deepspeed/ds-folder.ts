/**
 * @file Writes DeepSpeed configurations and loads trainers' configurations that name them.
 */
import type { TrainConfig } from '../../../src/config/train-config.js';
import { fileWith, load, recorder, REQUIRED } from '../config-folder.js';

/** What loading gave. */
export interface Loaded {
  readonly config: TrainConfig;
  /** Notes and warnings. */
  readonly lines: readonly string[];
}

/** Loads `trainer` (YAML) and flags beside the DeepSpeed configuration `ds`. */
export async function loadWith(ds: unknown, trainer = '', flags: string[] = []): Promise<Loaded> {
  const path = fileWith(typeof ds === 'string' ? ds : JSON.stringify(ds, null, 2));
  const logger = recorder();
  const file = fileWith(`deepspeed: ${path}\n${trainer}`);
  const config = await load([...REQUIRED, ...flags], file, logger);
  return { config, lines: logger.lines };
}

/**
 * @file Arguments of the commands that take a run's configuration: at most one file, and keys as flags.
 */
import { SpillwayError } from '../../core/errors.js';
import type { ConfigInput } from '../config/load-config.js';
import { parseFlags } from '../config/parse-flags.js';

/**
 * Where the configuration of `spillway <command> ...args` comes from.
 *
 * @throws USAGE_INVALID for more than one file; what `parseFlags` throws
 */
export function configArguments(
  command: string,
  args: readonly string[],
): Pick<ConfigInput, 'file' | 'flags'> {
  const { values: flags, positionals } = parseFlags(args);
  if (positionals.length > 1) {
    throw new SpillwayError(
      'USAGE_INVALID',
      `${command} takes one configuration file, not ${positionals.length}; see spillway ${command} --help`,
      { arguments: positionals },
    );
  }
  return { file: positionals[0], flags };
}

/**
 * @file The text of a small file of the system, or undefined where it cannot be read.
 */
import { readFileSync } from 'node:fs';

export function textOfFile(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

/**
 * @file The version in the package's own package.json.
 */
import { readFileSync } from 'node:fs';
import { SpillwayError } from '../../core/errors.js';

/** As published, e.g. `0.1.0`. Works from the sources and from dist/. */
export function packageVersion(): string {
  for (const up of ['../../', '../../../']) {
    const manifest = readManifest(new URL(`${up}package.json`, import.meta.url));
    if (manifest?.name === 'spillway') return manifest.version;
  }
  throw new SpillwayError('INTERNAL', 'no package.json of spillway above the running file');
}

function readManifest(url: URL): { name: string; version: string } | undefined {
  try {
    return JSON.parse(readFileSync(url, 'utf8')) as { name: string; version: string };
  } catch {
    return undefined;
  }
}

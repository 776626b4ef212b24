/**
 * @file Registers tfjs-core's gradient functions, which its Node build leaves out.
 *
 * They come as a list from a bundle that `npm run build` makes (scripts/build-gradients.mjs).
 * tfjs keeps one registry per process, on globalThis: a gradient that somebody else has registered
 * stays as it is, and nothing is registered twice.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import * as tf from '@tensorflow/tfjs-core';
import { SpillwayError } from '../../core/errors.js';

/** The bundle: beside this module in dist/, or in dist/ of the package when run from source. */
const BUNDLE_LOCATIONS = ['./tfjs-gradients.cjs', '../../dist/tiers/device/tfjs-gradients.cjs'];

let done = false;

/**
 * Makes every gradient function of tfjs-core 4.22.0 available. Idempotent.
 *
 * @throws INTERNAL when the bundle has not been built
 */
export function ensureGradients(): void {
  if (done) return;
  for (const config of loadConfigs()) {
    if ((tf.getGradient(config.kernelName) as tf.GradConfig | undefined) === undefined) {
      tf.registerGradient(config);
    }
  }
  done = true;
}

function loadConfigs(): readonly tf.GradConfig[] {
  const paths = BUNDLE_LOCATIONS.map((path) => fileURLToPath(new URL(path, import.meta.url)));
  const path = paths.find((candidate) => existsSync(candidate));
  if (path === undefined) {
    throw new SpillwayError(
      'INTERNAL',
      "the bundle of tfjs's gradient functions is missing; run npm run build",
      { searched: paths },
    );
  }
  const bundle = createRequire(import.meta.url)(path) as { gradConfigs: tf.GradConfig[] };
  return bundle.gradConfigs;
}

/**
 * Bundles tfjs-core's gradient definitions into dist/tiers/device/tfjs-gradients.cjs.
 *
 * tfjs-core's Node build registers no gradients, and the module that does so
 * (dist/register_all_gradients.js) cannot be imported by Node: its imports have no extensions. The
 * bundle only exports the list `gradConfigs`; tiers/device/gradients.ts registers it, so that
 * loading the bundle changes nothing. Its copies of tfjs-core's functions work on the one global
 * engine, which they find on globalThis.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const require = createRequire(import.meta.url);
const manifestPath = require.resolve('@tensorflow/tfjs-core/package.json');
const { version } = JSON.parse(readFileSync(manifestPath, 'utf8'));
const entry = join(dirname(manifestPath), 'dist', 'register_all_gradients.js');

/** Replaces the registering loop at the end of the entry by an export of its list. */
const exportList = {
  name: 'export-gradient-list',
  setup(bundler) {
    bundler.onLoad({ filter: /register_all_gradients\.js$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      const loop =
        /for \(const gradientConfig of gradConfigs\) \{\s*registerGradient\(gradientConfig\);\s*\}/;
      if (!loop.test(text)) throw new Error(`${path}: no registering loop; is this tfjs 4.22.0?`);
      return { contents: text.replace(loop, 'export { gradConfigs };'), loader: 'js' };
    });
  },
};

await build({
  entryPoints: [entry],
  outfile: join(root, 'dist/tiers/device/tfjs-gradients.cjs'),
  bundle: true,
  format: 'cjs',
  platform: 'node',
  target: 'node20',
  sourcemap: false,
  legalComments: 'eof',
  logLevel: 'warning',
  banner: {
    js: `// Gradient definitions of @tensorflow/tfjs-core ${version}, bundled; Apache-2.0.`,
  },
  plugins: [exportList],
});

/**
 * Writes docs/CONFIG.md from the compiled schema. With `--check` writes nothing and exits 1 when
 * the committed page differs.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { renderConfigPage } from '../dist/src/config/config-docs.js';

const path = new URL('../docs/CONFIG.md', import.meta.url);
const page = renderConfigPage();

if (process.argv.includes('--check')) {
  let committed = '';
  try {
    committed = readFileSync(path, 'utf8');
  } catch {
    // A missing page differs from the generated one.
  }
  if (committed !== page) {
    console.error(
      'docs/CONFIG.md differs from the schema; run node scripts/generate-config-docs.mjs',
    );
    process.exit(1);
  }
} else {
  writeFileSync(path, page);
}

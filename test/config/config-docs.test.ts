// Goal: docs/CONFIG.md and the help text are what the schema says.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { renderConfigHelp, renderConfigPage } from '../../src/config/config-docs.js';
import { CONFIG_KEY_NAMES } from '../../src/config/schema.js';

it('the committed page is the generated one', () => {
  const committed = readFileSync(new URL('../../docs/CONFIG.md', import.meta.url), 'utf8');
  expect(committed).toBe(renderConfigPage());
});

it('page and help name every key', () => {
  for (const name of CONFIG_KEY_NAMES) {
    expect(renderConfigPage()).toContain(`| \`${name}\` |`);
    expect(renderConfigHelp()).toContain(`  --${name} <`);
  }
});

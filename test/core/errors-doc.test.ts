// Goal: docs/ERRORS.md and the table of codes say the same, and every code is used.
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { ERROR_EXIT_STATUS } from '../../core/errors.js';

const root = fileURLToPath(new URL('../..', import.meta.url));

interface Entry {
  readonly code: string;
  readonly exit: number;
  readonly cause: string;
  readonly remedy: string;
}

/** Sections of the page; one of another form is an error of the page. */
function entriesOf(page: string): Entry[] {
  const sections = page.split(/^### /m).slice(1);
  return sections.map((section) => {
    const text = section.split(/^## /m)[0]!.replaceAll(/(?<!\n)\n(?!\n)/g, ' ');
    const match = /^`(\w+)`\n\nExit status (\d)\. (.+)\n\nRemedy: (.+?)\s*$/.exec(text);
    expect(match, section).not.toBeNull();
    const [, code = '', exit = '', cause = '', remedy = ''] = match!;
    return { code, exit: Number(exit), cause, remedy };
  });
}

const entries = entriesOf(readFileSync(join(root, 'docs/ERRORS.md'), 'utf8'));

it('lists every code once, in the order of the table, with its exit status', () => {
  const documented = entries.map(({ code, exit }) => [code, exit]);
  expect(documented).toEqual(Object.entries(ERROR_EXIT_STATUS));
});

it('gives each code a cause and a remedy in sentences', () => {
  for (const { code, cause, remedy } of entries) {
    expect(cause, code).toMatch(/^[A-Z].{10,}\.$/);
    expect(remedy, code).toMatch(/^.{8,}\.$/);
  }
});

it('has no code that nothing throws', () => {
  const sources = ['src', 'tiers', 'core'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && join(folder, name) !== 'core/errors.ts')
      .map((name) => readFileSync(join(root, folder, name), 'utf8')),
  );
  // INTERNAL is what `assert` of core/errors.ts throws.
  const unused = Object.keys(ERROR_EXIT_STATUS).filter(
    (code) => code !== 'INTERNAL' && !sources.some((text) => text.includes(`'${code}'`)),
  );
  expect(unused).toEqual([]);
});

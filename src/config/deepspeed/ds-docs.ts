/**
 * @file The section of docs/CONFIG.md about DeepSpeed's configuration, generated from its rules.
 */
import { DS_RULES, type DsRule } from './ds-rules.js';

/** The section, ending in a newline. */
export function renderDeepSpeedSection(): string {
  const entries = Object.entries(DS_RULES);
  const rows = entries.flatMap(([name, rule]) =>
    rule.kind === 'ignored' ? [] : [`| ${code(name)} | ${meaningOf(rule)} |`],
  );
  return `${HEAD}\n${rows.join('\n')}\n${IGNORED_HEAD}\n${ignoredLines().join('\n')}\n`;
}

/** One line per section, as the names within one are many. */
function ignoredLines(): string[] {
  const bySection = new Map<string, string[]>();
  for (const [name, rule] of Object.entries(DS_RULES)) {
    if (rule.kind !== 'ignored') continue;
    const dot = name.lastIndexOf('.');
    const section = name.endsWith('.*') ? '' : name.slice(0, Math.max(0, dot));
    const field = section === '' ? name : name.slice(dot + 1);
    bySection.set(section, [...(bySection.get(section) ?? []), code(field)]);
  }
  return [...bySection].map(([section, fields]) => {
    const where = section === '' ? 'at the top' : `in ${code(section)}`;
    return `- ${where}: ${fields.join(', ')}`;
  });
}

function code(name: string): string {
  return `\`${name}\``;
}

function meaningOf(rule: Exclude<DsRule, { kind: 'ignored' }>): string {
  if (rule.kind === 'mapped') return rule.meaning;
  const allowed = rule.allowed.filter((value) => value !== 'auto').map(String);
  return `${allowed.length === 0 ? 'refused' : `only ${allowed.join(' or ')}`}: ${rule.why}`;
}

const IGNORED_HEAD = `
Ignored, for no result depends on them (a star stands for the other keys of a section):
`;

const HEAD = `
## DeepSpeed

\`deepspeed: ds_config.json\` takes placement, batch sizes, optimizer, schedule, clipping and precision
from a DeepSpeed configuration.

- \`"auto"\` takes the trainer's key, given or by default. So does a key that is missing.
- A key given in both places must have the same value in both; otherwise the run does not start.
- Keys that have no counterpart are ignored and listed once, as are unknown keys. Keys that would
  change the mathematics and cannot be had here are refused.
- Numbers of elements stay numbers of elements.
- The optimizer and parameter sections may name different paths; Spillway spreads both kinds of state
  over all of them.

| DeepSpeed's key | here |
| --- | --- |`;

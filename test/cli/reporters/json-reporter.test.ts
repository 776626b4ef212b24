// Goal: JSON events have the keys of docs/OUTPUT.md, in order, and progress is not a flood.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { JsonReporter } from '../../../src/cli/reporters/json-reporter.js';
import { EVALUATION, SUMMARY, recordOf, report, stepOf } from './recorded-run.js';

type Event = Readonly<Record<string, unknown>> & { readonly event: string };

function record(run: (reporter: JsonReporter) => void, now?: () => number): Event[] {
  const events: Event[] = [];
  run(
    new JsonReporter((line) => {
      expect(line).not.toContain('\n');
      events.push(JSON.parse(line) as Event);
    }, now),
  );
  return events;
}

/** The list of docs/OUTPUT.md: event → keys. */
function documentedEvents(): Record<string, string[]> {
  const page = readFileSync(new URL('../../../docs/OUTPUT.md', import.meta.url), 'utf8');
  const items = page.matchAll(/^- `(\w+)`: [^]+?\. Keys:\s([^.]+)\.$/gm);
  return Object.fromEntries(
    Array.from(items, ([, event, keys]): [string, string[]] => [
      event!,
      Array.from(keys!.matchAll(/`([^`]+)`/g), ([, key]) => key!),
    ]),
  );
}

it('tells every event with the keys that docs/OUTPUT.md lists, and no others', () => {
  const events = record((reporter) => {
    report(reporter);
    const best = { best_metric: 3, best_model_checkpoint: 'out/checkpoint-2' };
    reporter.finished({ ...SUMMARY, ...best }, 'out');
    reporter.interrupted('out/checkpoint-5', 5);
  });
  const documented = documentedEvents();
  const keysOf = Object.fromEntries(
    events.map(({ event, ...facts }) => [event, Object.keys(facts)] as const),
  );
  expect(keysOf).toEqual(documented);
  for (const event of events) expect(Object.keys(event)[0]).toBe('event');
});

it('keeps the order and the values of what was reported', () => {
  const events = record((reporter) => {
    report(reporter);
  });
  const names = events.map(({ event }) => event);
  const steps = ['stepped', 'stepped', 'logged'];
  expect(names).toEqual([
    ...['preparing', 'preparing', 'started', ...steps, ...steps],
    ...['evaluating', 'evaluating', 'evaluated', 'saved', ...steps, 'finished'],
  ]);
  const { heldBytes, budgetBytes } = stepOf(3);
  expect(events.filter(({ event }) => event === 'stepped')[2]).toEqual({
    event: 'stepped',
    ...{ step: 3, total_steps: 6, loss: 4.25, tokens: 500, seconds: 0.5 },
    ...{ held_bytes: heldBytes, budget_bytes: budgetBytes },
  });
  expect(events.find(({ event }) => event === 'logged')).toEqual({
    event: 'logged',
    ...recordOf(2),
  });
  expect(events.find(({ event }) => event === 'evaluated')).toEqual({
    event: 'evaluated',
    ...EVALUATION,
  });
  expect(events.at(-1)).toEqual({ event: 'finished', folder: 'out', ...SUMMARY });
});

it('tells progress once a second, and always the end', () => {
  let nowMs = 0;
  const events = record(
    (reporter) => {
      for (let done = 0; done <= 100; done++) {
        reporter.preparing({ split: 'train', rows: done, bytesDone: done, bytesTotal: 100 });
        nowMs += 33;
      }
      for (let done = 0; done <= 100; done++) {
        reporter.evaluating(done, 100);
        nowMs += 33;
      }
    },
    () => nowMs,
  );
  const done = events.map((event) => event['bytes_done'] ?? event['done']);
  expect(done).toEqual([0, 31, 62, 93, 100, 0, 31, 62, 93, 100]);
});

it('writes null for numbers that JSON lacks', () => {
  const [event] = record((reporter) => {
    reporter.evaluated({ ...EVALUATION, eval_perplexity: Number.POSITIVE_INFINITY });
  });
  expect(event!['eval_perplexity']).toBeNull();
});

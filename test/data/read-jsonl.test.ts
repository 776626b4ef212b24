// Goal: lines come out as a split of the whole text gives them, whatever the chunks; bad files are named.
import { execFile, execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { readJsonl } from '../../src/data/read-jsonl.js';
import { failureOf, temporaryFiles } from './temporary-files.js';

const file = temporaryFiles();

async function lines(path: string, maxLineBytes?: number) {
  const result = [];
  for await (const line of readJsonl(path, maxLineBytes === undefined ? {} : { maxLineBytes }))
    result.push(line);
  return result;
}

/** The definition: split at newlines, number, trim, drop blanks. */
function expected(path: string, text: string) {
  return text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .map((line, index) => ({ place: `${path}:${index + 1}`, text: line.trim() }))
    .filter((line) => line.text !== '');
}

it('equals the split of the whole text', async () => {
  // Lengths around the 64 KiB of a read chunk, with multi-byte characters across its end.
  const line = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 20 }),
    fc.integer({ min: 21_840, max: 21_850 }).map((length) => '€'.repeat(length)),
    fc.constantFrom('', ' ', '\r'),
  );
  const ending = fc.constantFrom('', '\n', '\r\n\n');
  await fc.assert(
    fc.asyncProperty(
      fc.array(line, { maxLength: 8 }),
      ending,
      fc.boolean(),
      async (parts, end, bom) => {
        const joined = parts.map((part) => part.replaceAll(/[\n\uFEFF]/g, '')).join('\n') + end;
        const text = Buffer.from((bom ? '\uFEFF' : '') + joined, 'utf8');
        const path = file(text, 'property.jsonl');
        expect(await lines(path)).toEqual(expected(path, text.toString('utf8')));
      },
    ),
    { numRuns: 60 },
  );
});

it('accepts a byte-order mark, CRLF, blank lines and a missing final newline', async () => {
  const path = file('\uFEFF{"a":1}\r\n\r\n  \n{"b":2}');
  expect(await lines(path)).toEqual([
    { place: `${path}:1`, text: '{"a":1}' },
    { place: `${path}:4`, text: '{"b":2}' },
  ]);
});

it('bounds the length of a line, also of one that spans chunks', async () => {
  const long = file(`{}\n${'x'.repeat(200_000)}\n`);
  expect(await lines(long, 200_000)).toHaveLength(2);
  const error = await failureOf(() => lines(long, 199_999));
  expect(error.code).toBe('DATA_INVALID');
  expect(error.message).toContain(`${long}:2`);
  const unended = file('x'.repeat(200_000));
  expect((await failureOf(() => lines(unended, 199_999))).code).toBe('DATA_INVALID');
});

it('names the line that is not UTF-8', async () => {
  const path = file(Buffer.from([0x7b, 0x7d, 0x0a, 0x22, 0xff, 0x22]));
  const error = await failureOf(() => lines(path));
  expect(error.code).toBe('DATA_INVALID');
  expect(error.message).toContain(`${path}:2 is not UTF-8`);
});

it('names a missing file and a folder', async () => {
  expect((await failureOf(() => lines('/no/such.jsonl'))).code).toBe('DATA_NOT_FOUND');
  expect((await failureOf(() => lines(tmpdir()))).code).toBe('DATA_NOT_FOUND');
});

it('reads a pipe to its end, whenever its writer comes', async () => {
  const pipe = `${file('')}.pipe`;
  execFileSync('mkfifo', [pipe]);
  const reading = lines(pipe);
  await new Promise((done) => setTimeout(done, 100));
  await new Promise((done) =>
    execFile('sh', ['-c', `(echo 1; sleep 0.1; echo 2) > ${pipe}`], done),
  );
  expect(await reading).toEqual([
    { place: `${pipe}:1`, text: '1' },
    { place: `${pipe}:2`, text: '2' },
  ]);
});

it('gives up a pipe without a writer when it is told to', async () => {
  const pipe = `${file('')}.pipe`;
  execFileSync('mkfifo', [pipe]);
  const stop = new AbortController();
  const reading = readJsonl(pipe, { signal: stop.signal }).next();
  setTimeout(() => {
    stop.abort(new Error('enough'));
  }, 100);
  await expect(reading).rejects.toThrow('enough');
});

#!/usr/bin/env node
/**
 * @file The `spillway` executable: runs the command line, sets the exit status.
 *
 * Standard output carries results only; notes, warnings and errors go to standard error.
 */
import { SpillwayError } from '../../core/errors.js';
import { tidyUp } from './abrupt-end.js';
import { errorFormatOf, setErrorFormat } from './error-format.js';
import { exitStatusOf, reportError } from './report-error.js';
import { runCli } from './run-cli.js';

const args = process.argv.slice(2);
const debug = args.includes('--debug');
setErrorFormat(errorFormatOf(args));
/** Commands that go on, or end in order, when nobody reads what they print. */
const OUTLIVES_READER = ['train', 'generate'];
const printsResults = !OUTLIVES_READER.includes(args.find((arg) => !arg.startsWith('-')) ?? '');

function fail(error: unknown): never {
  reportError(error, debug);
  // Workers and rings of a failed run may still be open; the error is what matters now.
  process.exit(exitStatusOf(error));
}

/** What a stream that cannot be written to is told as. */
function unwritable(error: NodeJS.ErrnoException): Error {
  if (error.code !== 'ENOSPC' && error.code !== 'EFBIG' && error.code !== 'EDQUOT') return error;
  const message = 'no space left for what is printed; free space, or print elsewhere';
  return new SpillwayError('OUTPUT_FULL', message, { errno: error.code }, error);
}

process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);
// A second Ctrl-C ends the process by itself.
process.on('exit', tidyUp);
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') fail(unwritable(error));
    // A reader such as `head` has seen enough. A training run goes on: its results are files;
    // generation ends by itself and removes its files.
    if (stream === process.stdout && printsResults) process.exit(0);
  });
}

try {
  process.exitCode = await runCli(args);
} catch (error) {
  fail(error);
}

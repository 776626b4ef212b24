#!/usr/bin/env node
/**
 * @file The `spillway` executable: runs the command line, sets the exit status.
 *
 * Standard output carries results only; notes, warnings and errors go to standard error.
 */
import { exitStatusOf, reportError } from './report-error.js';
import { runCli } from './run-cli.js';

const args = process.argv.slice(2);
const debug = args.includes('--debug');

function fail(error: unknown): never {
  reportError(error, debug);
  // Workers and rings of a failed run may still be open; the error is what matters now.
  process.exit(exitStatusOf(error));
}

process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    // A reader such as `head` has seen enough; the run goes on.
    if (error.code !== 'EPIPE') fail(error);
  });
}

try {
  process.exitCode = await runCli(args);
} catch (error) {
  fail(error);
}

/**
 * Runs the native tests on instrumented builds of the addon; exits 1 on any finding.
 *
 * - `address`: the addon with AddressSanitizer and UndefinedBehaviorSanitizer under vitest. The
 *   library is preloaded, since Node is not linked with it, so ArrayBuffers too have guarded ends.
 *   Leaks are not looked for: V8 keeps what it allocates until the process ends.
 * - `thread`: ThreadSanitizer. Node's own synchronisation is not instrumented, so the queues, the
 *   thread pool and the kernels run without Node, in native/test/queue-stress.cc.
 *
 * Reports go to files, since a test may swallow what its child processes print. Each part first
 * makes a mistake on purpose: a sanitizer that does not see it sees nothing.
 *
 *     node scripts/test-sanitize.mjs [address|thread] [vitest filter ...]
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');

/** Tests of whatever reaches C++, as vitest's path filters. */
const NATIVE_TESTS = [
  'test/native/',
  'test/device/native',
  'test/device/written-ranges',
  'test/nvme/ring',
  'test/nvme/sync-io',
  'test/nvme/io-backend.test',
  'test/nvme/file-lock',
  'test/host/host-pool',
];

/** Writes behind the end of an ArrayBuffer, as a kernel with a wrong length would. */
const OVERFLOW = `
  const addon = require(process.env.SPILLWAY_ADDON);
  const base = new Uint8Array(4096);
  addon.runKernelNow(addon.kernelId('fillFloat'), base, new Float64Array([0, 1025, 1]), 1);`;

/** Runs a program to its end in the foreground; returns its exit status (-1: by a signal). */
function run(command, args, environment = {}, stdio = 'inherit') {
  const env = { ...process.env, ...environment };
  const { status, error } = spawnSync(command, args, { cwd: root, env, stdio });
  if (error) throw error;
  return status ?? -1;
}

function build(sanitizers) {
  const script = join(root, 'scripts/build-native.mjs');
  if (run(process.execPath, [script, '--sanitize', sanitizers]) !== 0) {
    throw new Error(`the addon does not build with --sanitize ${sanitizers}`);
  }
}

/** Path of a library of the compiler, which ld.so can preload. */
function libraryPath(name) {
  const compiler = process.env.CXX ?? 'g++';
  const { stdout } = spawnSync(compiler, [`-print-file-name=${name}`], { encoding: 'utf8' });
  const path = stdout?.trim() ?? '';
  if (!existsSync(path) || path === name) throw new Error(`${compiler} has no ${name}`);
  return path;
}

/** The reports of `folder`, which are then removed. */
function takeReports(folder) {
  const paths = readdirSync(folder).map((name) => join(folder, name));
  const reports = paths.map((path) => readFileSync(path, 'utf8'));
  for (const path of paths) rmSync(path);
  return reports;
}

function testAddress(reportFolder, filters) {
  build('address,undefined');
  const log = `log_path=${join(reportFolder, 'report')}`;
  const environment = {
    SPILLWAY_ADDON: join(root, 'build/asan/spillway.node'),
    LD_PRELOAD: libraryPath('libasan.so'),
    // A refused allocation is null, as without the sanitizer: tests ask for too much.
    ASAN_OPTIONS: `detect_leaks=0:halt_on_error=1:abort_on_error=1:allocator_may_return_null=1:${log}`,
    UBSAN_OPTIONS: `halt_on_error=1:print_stacktrace=1:${log}`,
  };
  run(process.execPath, ['-e', OVERFLOW], environment, 'ignore');
  if (!takeReports(reportFolder).some((text) => text.includes('heap-buffer-overflow'))) {
    throw new Error('AddressSanitizer does not see an overflow made on purpose');
  }
  const vitest = join(root, 'node_modules/vitest/vitest.mjs');
  // Instrumented kernels run several times slower.
  const args = [vitest, 'run', '--test-timeout=600000', ...filters];
  return run(process.execPath, args, environment);
}

function testThread(reportFolder) {
  build('thread');
  const program = join(root, 'build/tsan/queue-stress');
  const environment = {
    TSAN_OPTIONS: `halt_on_error=0:exitcode=66:log_path=${join(reportFolder, 'report')}`,
  };
  // At fixed addresses: the sanitizer of older compilers refuses the layouts of newer kernels.
  const start = (...args) => run('setarch', ['-R', program, ...args], environment);
  if (start('race') !== 66 || takeReports(reportFolder).length === 0) {
    throw new Error('ThreadSanitizer does not see a race made on purpose');
  }
  return start();
}

/** Runs one part; returns whether it was clean. */
function runPart(name, part) {
  const reportFolder = mkdtempSync(join(tmpdir(), 'spillway-sanitize-'));
  const startMs = performance.now();
  try {
    const status = part(reportFolder);
    const reports = takeReports(reportFolder);
    for (const report of reports) console.error(report);
    const seconds = ((performance.now() - startMs) / 1000).toFixed(0);
    console.log(`${name}: status ${status}, ${reports.length} reports, ${seconds} s`);
    return status === 0 && reports.length === 0;
  } finally {
    rmSync(reportFolder, { recursive: true, force: true });
  }
}

const parts = {
  address: (folder, filters) => testAddress(folder, filters),
  thread: (folder) => testThread(folder),
};

const [first, ...rest] = process.argv.slice(2);
if (first !== undefined && !Object.hasOwn(parts, first)) {
  console.error('usage: node scripts/test-sanitize.mjs [address|thread] [vitest filter ...]');
  process.exit(2);
}
const filters = rest.length > 0 ? rest : NATIVE_TESTS;
const names = first === undefined ? Object.keys(parts) : [first];
const clean = names.map((name) => runPart(name, (folder) => parts[name](folder, filters)));
process.exitCode = clean.every(Boolean) ? 0 : 1;

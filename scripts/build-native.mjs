/**
 * Builds the C++ addon: native/*.cc into build/spillway.node, by the compiler alone.
 *
 * Compiler: $CXX, else g++, c++ or clang++. Headers: the node-api-headers package, then Node's own
 * include folder (which also has uv.h). No network, no Python, no -march flag: kernels for newer
 * instruction sets carry function attributes and are picked at run time. Objects are named by a
 * hash of everything that goes into them, so nothing unchanged is compiled again, and files appear
 * by rename, so concurrent builds and running processes never see half of one.
 *
 * Without a compiler, or when compiling fails, it prints one warning and exits 0: the portable
 * TypeScript path gives the same bits, slower. `--strict` exits 1 instead (for CI).
 *
 * `--sanitize address,undefined` builds an instrumented addon, build/asan/spillway.node, and
 * `--sanitize thread` another, build/tsan/spillway.node, and the programs native/test/*.cc over the
 * same objects. Both are strict and for Linux; scripts/test-sanitize.mjs runs the tests on them.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

/** Instrumented builds: their folder under build/ and what gcc and clang call the sanitizers. */
const SANITIZED_FOLDERS = { 'address,undefined': 'asan', thread: 'tsan' };

const { values: options } = parseArgs({
  options: { strict: { type: 'boolean', default: false }, sanitize: { type: 'string' } },
});
const sanitize = options.sanitize;
if (sanitize !== undefined && !Object.hasOwn(SANITIZED_FOLDERS, sanitize)) {
  console.error(`--sanitize takes one of: ${Object.keys(SANITIZED_FOLDERS).join(' | ')}`);
  process.exit(2);
}

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const sourceFolder = join(root, 'native');
const outputFolder = join(root, 'build', sanitize ? SANITIZED_FOLDERS[sanitize] : '');
const objectFolder = join(outputFolder, 'obj');
const output = join(outputFolder, 'spillway.node');
const stamp = join(outputFolder, 'spillway.stamp');

const COMPILE_FLAGS = [
  // -O3, since at -O2 gcc does not vectorise loops of unknown length. Instrumented, -O1 keeps the
  // frames of a report readable and the compiler from removing what it should check.
  ...(sanitize ? ['-O1', '-g', '-fno-omit-frame-pointer'] : ['-O3']),
  '-std=c++17',
  '-fPIC',
  '-fvisibility=hidden',
  '-pthread',
  '-DNAPI_VERSION=8',
  // One rounding per operation as written: the bits of a kernel must not depend on the compiler.
  '-ffp-contract=off',
  // Without these two gcc leaves sqrtf scalar (4.5 times slower); neither changes a result.
  '-fno-math-errno',
  '-fno-trapping-math',
  '-Wall',
  '-Wextra',
  // Vectors wider than the registers of the machine are passed between inlined functions only.
  '-Wno-psabi',
];
/** Of compiling and linking alike; a finding of the undefined-behaviour sanitizer is an error. */
const SANITIZE_FLAGS = sanitize
  ? [`-fsanitize=${sanitize}`, '-fno-sanitize-recover=undefined']
  : [];
const LINK_FLAGS = [
  ...(process.platform === 'darwin' ? ['-undefined', 'dynamic_lookup', '-bundle'] : ['-shared']),
  ...SANITIZE_FLAGS,
];

/** Runs a command; resolves to its status and everything that it printed. */
function run(command, args) {
  return new Promise((settle) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let text = '';
    child.stdout.on('data', (data) => (text += data));
    child.stderr.on('data', (data) => (text += data));
    child.on('error', (error) => settle({ ok: false, text: error.message }));
    child.on('close', (code) => settle({ ok: code === 0, text }));
  });
}

async function findCompiler() {
  const candidates = process.env.CXX ? [process.env.CXX] : ['g++', 'c++', 'clang++'];
  for (const compiler of candidates) {
    const { ok, text } = await run(compiler, ['--version']);
    if (ok) return { compiler, version: text };
  }
  throw new Error(`no C++ compiler (tried ${candidates.join(', ')})`);
}

function findHeaders() {
  const nodeInclude = resolve(dirname(process.execPath), '../include/node');
  const folders = [];
  try {
    const require = createRequire(import.meta.url);
    folders.push(join(dirname(require.resolve('node-api-headers/package.json')), 'include'));
  } catch {
    // Installed without development dependencies: Node's own headers serve.
  }
  folders.push(nodeInclude);
  const found = folders.filter((folder) => existsSync(join(folder, 'node_api.h')));
  if (found.length === 0) throw new Error(`no node_api.h (looked in ${folders.join(', ')})`);
  return found;
}

const hash = (...parts) => {
  const digest = createHash('sha256');
  for (const part of parts) digest.update(part).update('\0');
  return digest.digest('hex').slice(0, 24);
};

/** Compiles one source unless its object exists; returns the object's path. */
async function compile(compiler, flags, source, key) {
  const object = join(objectFolder, `${basename(source, '.cc')}-${key}.o`);
  if (existsSync(object)) return object;
  const partial = `${object}.${process.pid}`;
  const args = [...flags, '-c', join(sourceFolder, source), '-o', partial];
  const { ok, text } = await run(compiler, args);
  if (!ok) throw new Error(`${source} does not compile:\n${text}`);
  if (text.trim() !== '') process.stderr.write(text);
  renameSync(partial, object);
  return object;
}

/** Maps `items` with at most one task per processor at a time. */
async function mapParallel(items, task) {
  const results = new Array(items.length);
  let next = 0;
  const worker = async () => {
    while (next < items.length) {
      const index = next++;
      results[index] = await task(items[index]);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  return results;
}

async function build() {
  const { compiler, version } = await findCompiler();
  const flags = [...COMPILE_FLAGS, ...SANITIZE_FLAGS];
  flags.push(...findHeaders().map((folder) => `-I${folder}`));
  const names = readdirSync(sourceFolder).sort();
  const headers = names.filter((name) => name.endsWith('.h'));
  const sources = names.filter((name) => name.endsWith('.cc'));
  const read = (name) => readFileSync(join(sourceFolder, name));
  const common = hash(version, ...flags, ...headers.flatMap((name) => [name, read(name)]));
  const keys = new Map(sources.map((name) => [name, hash(common, read(name))]));

  const programs = sanitize === 'thread' ? programKeys(common) : [];
  const whole = hash(...[...keys].flat(), ...programs.flat(), ...LINK_FLAGS);
  if (existsSync(output) && existsSync(stamp) && readFileSync(stamp, 'utf8') === whole) return;

  mkdirSync(objectFolder, { recursive: true });
  const objects = await mapParallel(sources, (name) =>
    compile(compiler, flags, name, keys.get(name)),
  );
  const partial = `${output}.${process.pid}`;
  const linked = await run(compiler, [...LINK_FLAGS, '-pthread', ...objects, '-o', partial]);
  if (!linked.ok) throw new Error(`linking failed:\n${linked.text}`);
  renameSync(partial, output);
  if (sanitize === 'thread') await linkPrograms(compiler, flags, common, objects);
  writeFileSync(stamp, whole);
}

/**
 * native/test/<name>.cc, with all of the addon, as the program <name>. What only Node defines is
 * null in it, which -no-pie settles while linking: a program must not call it.
 */
async function linkPrograms(compiler, flags, common, objects) {
  for (const [name, key] of programKeys(common)) {
    const object = await compile(compiler, flags, name, key);
    const program = join(outputFolder, basename(name, '.cc'));
    const args = [...SANITIZE_FLAGS, '-pthread', ...objects, object];
    args.push('-no-pie', '-Wl,--unresolved-symbols=ignore-all', '-o', `${program}.${process.pid}`);
    const linked = await run(compiler, args);
    if (!linked.ok) throw new Error(`${name} does not link:\n${linked.text}`);
    renameSync(`${program}.${process.pid}`, program);
  }
}

/** Sources of the programs, below native/, each with the hash of what goes into its object. */
function programKeys(common) {
  const names = readdirSync(join(sourceFolder, 'test')).filter((name) => name.endsWith('.cc'));
  const paths = names.sort().map((name) => join('test', name));
  return paths.map((path) => [path, hash(common, readFileSync(join(sourceFolder, path)))]);
}

try {
  await build();
} catch (error) {
  // An addon of older sources would be worse than none: its numbers may differ.
  rmSync(output, { force: true });
  rmSync(stamp, { force: true });
  const strict = options.strict || sanitize !== undefined;
  const reason = strict ? error.message : error.message.replaceAll(/\s*\n\s*/g, ' ').slice(0, 300);
  console.error(
    `warning: the native addon was not built, so training uses the portable path (same results, ` +
      `AdamW about 25 times slower, no io_uring); install g++ and run "npm run build:native" ` +
      `(${reason})`,
  );
  process.exitCode = strict ? 1 : 0;
}

/**
 * @file The commands and their arguments, by commander. Commands have no logic of their own.
 *
 * `train` takes configuration keys as flags; these are parsed by the configuration, which knows
 * their names, so that commander lets unknown options through.
 */
import { Command, CommanderError } from 'commander';
import { SpillwayError } from '../../core/errors.js';
import { stderrLogger } from '../../core/logger.js';
import { renderConfigHelp } from '../config/config-docs.js';
import { parseValue, splitList } from '../config/config-key.js';
import { GENERATE_KEYS } from '../config/keys/generate-keys.js';
import { CONFIG_KEYS } from '../config/schema.js';
import { renderDoctorTable } from './doctor-table.js';
import { runEvaluateCommand, type EvaluateCommandOptions } from './evaluate-command.js';
import { runGenerateCommand, type GenerateCommandOptions } from './generate-command.js';
import { packageVersion } from './package-version.js';
import { runPlanCommand, type PlanCommandOptions } from './plan-command.js';
import { runReportCommand, type ReportCommandOptions } from './report-command.js';
import { runTuneCommand, type TuneCommandOptions } from './tune-command.js';
import { runTrainCommand, type TrainCommandOptions } from './train-command.js';

/**
 * Runs one command line, without the executable's name.
 *
 * @returns the exit status of a run that ended without error
 * @throws USAGE_INVALID, and what the commands throw
 */
export async function runCli(args: readonly string[]): Promise<number> {
  let status = 0;
  const program = createProgram((value) => {
    status = value;
  });
  try {
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return 0; // Help or version was printed.
    throw usageError(error);
  }
  return status;
}

function createProgram(setStatus: (status: number) => void): Command {
  const program = new Command('spillway')
    .description('Memory-tiered offload engine: trains models larger than their device.')
    .version(packageVersion())
    .option('--debug', 'print stack traces of errors')
    .exitOverride()
    // Errors are printed in one place, report-error.ts.
    .configureOutput({ writeErr: () => undefined });
  addTrain(program, setStatus);
  addPlan(program);
  addTune(program, setStatus);
  addEvaluate(program, setStatus);
  addGenerate(program, setStatus);
  addReport(program);
  addInit(program);
  addDoctor(program);
  return program;
}

function addTrain(program: Command, setStatus: (status: number) => void): void {
  program
    .command('train')
    .usage('[CONFIG.yaml] [--key value ...]')
    .description('fine-tune a Hugging Face checkpoint on JSONL')
    .argument('[args...]')
    .option('--json', 'print JSON events, one per line')
    .allowUnknownOption()
    .addHelpText('after', () => `\nKeys, in CONFIG.yaml or as flags:\n${renderConfigHelp()}`)
    .action(async (args: string[], options: TrainCommandOptions) => {
      setStatus(await runTrainCommand(args, options));
    });
}

function addEvaluate(program: Command, setStatus: (status: number) => void): void {
  program
    .command('evaluate')
    .usage('[CONFIG.yaml] [--key value ...]')
    .description('loss and perplexity of a model on JSONL')
    .argument('[args...]')
    .option('--json', 'print one JSON object')
    .allowUnknownOption()
    .addHelpText(
      'after',
      '\nThe keys of train: model_name_or_path, eval_files (else data_files), the other data keys,\nper_device_eval_batch_size, dtype, device and the memory keys; see spillway train --help.',
    )
    .action(async (args: string[], options: EvaluateCommandOptions) => {
      setStatus(await runEvaluateCommand(args, { json: options.json ?? false }));
    });
}

function addGenerate(program: Command, setStatus: (status: number) => void): void {
  program
    .command('generate')
    .usage('MODEL [-] [--prompt TEXT] [--key value ...]')
    .description('continue a text with a model; - reads it from standard input')
    .argument('[args...]')
    .option('--json', 'print one JSON object')
    .allowUnknownOption()
    .addHelpText('after', () => `\nFlags:\n${renderConfigHelp(GENERATE_KEYS)}`)
    .action(async (args: string[], options: GenerateCommandOptions) => {
      setStatus(await runGenerateCommand(args, { json: options.json ?? false }));
    });
}

function addPlan(program: Command): void {
  program
    .command('plan')
    .alias('estimate')
    .usage('[CONFIG.yaml] [--key value ...]')
    .description('what a run would hold in each tier, and the smallest budgets that work')
    .argument('[args...]')
    .option('--json', 'print JSON with stable keys')
    .option('--drive_tbw <TB>', 'terabytes that the drive may be written; says how long it lasts')
    .allowUnknownOption()
    .addHelpText(
      'after',
      '\nTakes the keys of train. model_name_or_path (--model for short) may also be a config.json, or\na folder with nothing else: neither weights nor data are read.',
    )
    .action(async (args: string[], options: PlanCommandOptions) => {
      print(await runPlanCommand(args, options));
    });
}

function addReport(program: Command): void {
  program
    .command('report')
    .description('write one HTML page about a run: losses, a step, bytes, plan and measurement')
    .argument('<OUTPUT_DIR>', 'output_dir of a run')
    .option('--out <FILE.html>', 'the page (default: report.html in OUTPUT_DIR)')
    .option('--trace <FILE>', 'what train --trace wrote (default: trace.json in OUTPUT_DIR)')
    .action(async (folder: string, options: ReportCommandOptions) => {
      print(await runReportCommand(folder, options));
    });
}

function addTune(program: Command, setStatus: (status: number) => void): void {
  program
    .command('tune')
    .usage('[CONFIG.yaml] [--key value ...]')
    .description('measure this machine, so that plan predicts by its own figures')
    .argument('[args...]')
    .option('--json', 'print JSON with stable keys')
    .allowUnknownOption()
    .addHelpText(
      'after',
      '\nTakes the keys of train. Measures copies and AdamW; the folders of nvme_path; the blocks of\nmodel_name_or_path, where these are given. Takes 20 seconds at most: where machine or disk are\nslow, it repeats less, computes fewer blocks or shorter rows and leaves operations out, which plan\nthen estimates.',
    )
    .action(async (args: string[], options: TuneCommandOptions) => {
      setStatus(await runTuneCommand(args, options));
    });
}

function addInit(program: Command): void {
  program
    .command('init')
    .description('write a random checkpoint with a byte-level tokenizer')
    .argument('<CONFIG_JSON>', 'config.json of a supported model')
    .argument('<OUT>', 'folder to make')
    .option('--seed <number>', CONFIG_KEYS.seed.type, String(CONFIG_KEYS.seed.fallback))
    .option('--dtype <type>', CONFIG_KEYS.dtype.type, CONFIG_KEYS.dtype.fallback as string)
    .action(async (configPath: string, outputFolder: string, options: InitOptions) => {
      const seed = parseValue('seed', CONFIG_KEYS.seed, options.seed);
      const dtype = parseValue('dtype', CONFIG_KEYS.dtype, options.dtype);
      const { initCheckpoint } = await import('../checkpoint/init-checkpoint.js');
      const logger = stderrLogger;
      const result = await initCheckpoint({ configPath, outputFolder, seed, dtype, logger });
      print(`${result.folder}: ${result.parameterCount} parameters, ${dtype}, seed ${seed}`);
    });
}

interface InitOptions {
  readonly seed: string;
  readonly dtype: string;
}

function addDoctor(program: Command): void {
  const collect = (text: string, before: string[]) => [...before, ...splitList(text)];
  program
    .command('doctor')
    .description('what this machine offers, and what each missing thing costs')
    .option('--json', 'print JSON with stable keys')
    .option('--nvme_path <folder>', 'folder to examine; repeatable (default: here)', collect, [])
    .action(async (options: { json?: boolean; nvme_path: string[] }) => {
      // tfjs loads only now.
      const { runDoctor } = await import('./doctor.js');
      const paths = options.nvme_path.length > 0 ? options.nvme_path : [process.cwd()];
      const report = runDoctor(paths);
      print(options.json === true ? JSON.stringify(report, null, 2) : renderDoctorTable(report));
    });
}

function usageError(error: CommanderError): SpillwayError {
  // Commander answers a missing command with the help text, as an error.
  const missing = error.code === 'commander.help';
  const message = missing ? 'no command' : error.message.replace(/^error: /, '');
  return new SpillwayError('USAGE_INVALID', `${message}; see spillway --help`, {}, error);
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

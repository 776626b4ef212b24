// Goal: train hands the configuration to the run, and a signal stops it in order.
import { beforeEach, expect, it, vi } from 'vitest';
import type { TrainConfig } from '../../src/config/train-config.js';
import type { RunOptions } from '../../src/train/run-train.js';
import { runTrainCommand } from '../../src/cli/train-command.js';

type Run = (config: TrainConfig, options: RunOptions) => Promise<void>;
const run = vi.hoisted(() => vi.fn<Run>());
vi.mock('../../src/train/run-train.js', () => ({ runTrain: run }));

const stderr = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
const REQUIRED = ['--model_name_or_path', 'm', '--data_files', 'd.jsonl'];

beforeEach(() => {
  run.mockReset();
});

it('passes the typed configuration and returns 0', async () => {
  run.mockResolvedValue();
  expect(
    await runTrainCommand([...REQUIRED, '--max-steps=3', '--offload_param.device', 'cpu']),
  ).toBe(0);
  const [config, options] = run.mock.calls[0]!;
  expect(config).toMatchObject({
    modelNameOrPath: 'm',
    dataFiles: ['d.jsonl'],
    maxSteps: 3,
    offloadParam: { device: 'cpu' },
  });
  expect(options.signal?.aborted).toBe(false);
  expect(process.listenerCount('SIGTERM')).toBe(0);
});

it.each([
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const)('aborts the run on %s and returns %i', async (name, status) => {
  run.mockImplementation(async (_config, { signal }) => {
    process.emit(name, name);
    signal!.throwIfAborted();
  });
  expect(await runTrainCommand(REQUIRED)).toBe(status);
  expect(stderr).toHaveBeenCalledWith(expect.stringContaining(name));
  // A run that ends by itself after the signal has the same status.
  run.mockImplementation(async () => void process.emit(name, name));
  expect(await runTrainCommand(REQUIRED)).toBe(status);
});

it('throws what the run throws, also while it stops', async () => {
  run.mockImplementation(async () => {
    process.emit('SIGTERM', 'SIGTERM');
    throw new Error('disk full');
  });
  await expect(runTrainCommand(REQUIRED)).rejects.toThrow('disk full');
});

it('refuses a second positional argument', async () => {
  await expect(runTrainCommand(['a.yaml', 'b.yaml'])).rejects.toMatchObject({
    code: 'USAGE_INVALID',
  });
  expect(run).not.toHaveBeenCalled();
});

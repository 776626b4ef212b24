/**
 * @file The model that a run ends with, in `output_dir` itself.
 */
import { readFile, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { republishModel } from '../checkpoint/republish-model.js';
import { RUN_STATE_NAME } from '../checkpoint/training-checkpoint.js';
import type { Engine } from '../engine/engine.js';
import { checkpointFolder } from './checkpoint-writer.js';
import type { RunPlan } from './plan-run.js';

/** The checkpoint with the best evaluation, where there is one. */
export function bestFolderOf({ config, state }: RunPlan): string | undefined {
  return state.bestSaved === undefined
    ? undefined
    : checkpointFolder(config.outputDir, state.bestSaved.step);
}

/**
 * Saves the last weights, or with `load_best_model_at_end` those of the best checkpoint, byte for
 * byte.
 *
 * @throws OUTPUT_FULL, PATH_UNWRITABLE, IO_ERROR; an earlier model is unharmed
 */
export async function saveFinalModel(engine: Engine, plan: RunPlan): Promise<void> {
  const { config, base } = plan;
  const best = bestFolderOf(plan);
  if (!config.loadBestModelAtEnd || best === undefined) {
    await engine.save(config.outputDir, { mode: 'into', maxShardSize: config.maxShardSize });
    return;
  }
  await republishModel({
    from: best,
    into: config.outputDir,
    maxShardBytes: config.maxShardSize,
    writeCompanions: (folder) => base.writeCompanions(folder),
  });
}

/**
 * Whether the run that `plan` resumes is over: all steps done, and the final model and the summary,
 * which is written last, lie in `output_dir` and are younger than the checkpoint.
 */
export async function isFinished({ config, checkpoint, sampler }: RunPlan): Promise<boolean> {
  if (checkpoint === undefined || checkpoint.run.evaluation_due) return false;
  const { step } = checkpoint.run;
  if (step < sampler.totalSteps) return false;
  try {
    const summaryPath = join(config.outputDir, 'summary.json');
    const summary = JSON.parse(await readFile(summaryPath, 'utf8')) as { global_step?: unknown };
    const [written, saved] = await Promise.all([
      stat(summaryPath),
      stat(join(checkpoint.folder, RUN_STATE_NAME)),
    ]);
    const names = await readdir(config.outputDir);
    const hasModel = names.some((name) => /^model\.safetensors(\.index\.json)?$/.test(name));
    return summary.global_step === step && hasModel && written.mtimeMs >= saved.mtimeMs;
  } catch {
    // Missing or unreadable: it is saved again, which tells what is wrong.
    return false;
  }
}

/**
 * @file The bytes that a trace says were moved: by step, by kind of operation, by link. What it
 * predicts beside that is not counted.
 */
import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import type { Link } from '../../core/types.js';
import { PROCESSES } from '../../src/train/trace/trace-event.js';

export type LinkBytes = Readonly<Record<Link, number>>;

/** By kind of operation that moves bytes, as `bytes_per_step_by_action` of a plan. */
export type ActionBytes = Readonly<Record<string, LinkBytes>>;

/** Reads the trace at `path`, which holds one event per line. @returns by number of step */
export async function tracedBytes(path: string): Promise<ReadonlyMap<number, ActionBytes>> {
  const steps = new Map<number, Record<string, Record<Link, number>>>();
  for await (const line of createInterface({ input: createReadStream(path) })) {
    if (!line.startsWith('{"ph":"X"')) continue;
    const { pid, args } = JSON.parse(line.replace(/,$/, '')) as {
      pid: number;
      args: { step: number; action?: string; bytes?: Partial<Record<Link, number>> };
    };
    const { step, action, bytes } = args;
    if (pid !== PROCESSES.measured || action === undefined || bytes === undefined) continue;
    const some = Object.entries(bytes).filter(([, moved]) => moved > 0);
    if (some.length === 0) continue;
    const actions = steps.get(step) ?? {};
    steps.set(step, actions);
    actions[action] ??= { upload: 0, download: 0, nvme_read: 0, nvme_write: 0 };
    for (const [link, moved] of some) actions[action][link as Link] += moved;
  }
  return steps;
}

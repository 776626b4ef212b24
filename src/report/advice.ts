/**
 * @file What limits a step, and what would shorten it, in a few sentences.
 */
import { html, type Html } from './html.js';
import type { Spending, StepAccount } from './step-account.js';
import { duration, percent, ratio } from './text.js';

/** Compute is what limits a step in which it works for so much of the time. */
const COMPUTE_BOUND = 0.85;

/** A kind of wait that is worth a sentence. */
const WORTH_NAMING = 0.05;

/** How much measurement and prediction may differ before it is said. */
const FAR_OFF = 1.25;

/** What compute does with its time. */
export const SPENDINGS: Readonly<Record<Spending, string>> = {
  compute: 'works',
  upload: 'waits for upload',
  download: 'waits for download',
  nvme_read: 'waits for nvme_read',
  nvme_write: 'waits for nvme_write',
  update: 'waits for update',
  host: 'waits for the host',
  between: 'waits between steps',
  end: 'stands still at the end',
};

/** What can be done about a wait. */
function remedyOf(on: Exclude<Spending, 'compute'>, account: StepAccount): Html {
  switch (on) {
    case 'upload':
      return html`A larger <code>device_memory</code> keeps more on the device; more
        <code>gradient_accumulation_steps</code> use each upload for more tokens.`;
    case 'download':
      return html`A larger <code>device_memory</code> keeps more activations on the device; more
        <code>gradient_accumulation_steps</code> send gradients home once for more tokens.`;
    case 'nvme_read':
    case 'nvme_write':
      return html`A larger <code>host_memory</code> keeps more off NVMe;
        <code>nvme_path</code> takes several drives.`;
    case 'update':
      return html`More of the states in a larger <code>host_memory</code>, or more
        <code>optimizer_workers</code>, shorten the
        update${
          account.updatesEarly
            ? '.'
            : html`; <code>max_grad_norm: 0</code> lets it begin during backward.`
        }`;
    case 'host':
      return html`The processor launches kernels, checks gradients and adds them up then; larger
      micro-batches give it less of that per token, and other work on the machine delays it.`;
    case 'between':
      return html`Batches are put together and results are told then.`;
    case 'end':
      return html`Gradients are sent home then.`;
    default:
      return on satisfies never;
  }
}

/** The sentences; the first says what limits the step. */
export function adviceOn(account: StepAccount): Html[] {
  const { spent, length, predicted } = account;
  const works = (spent.find(({ on }) => on === 'compute')?.length ?? 0) / length;
  const sentences: Html[] = [];
  if (works >= COMPUTE_BOUND) {
    sentences.push(
      html`Compute limits this step: it works for ${percent(works)} of the time. More memory would
      save at most the other ${percent(1 - works)}.`,
    );
  } else {
    sentences.push(html`Compute works for ${percent(works)} of this step and waits for the rest.`);
    for (const { on, length: time } of spent) {
      if (on === 'compute' || time / length < WORTH_NAMING) continue;
      sentences.push(
        html`It ${SPENDINGS[on]} for ${duration(time)}, ${percent(time / length)}.
        ${remedyOf(on, account)}`,
      );
    }
    sentences.push(html`<code>spillway plan</code> says what larger budgets would save.`);
  }
  if (predicted !== undefined && isFarOff(length, predicted)) {
    sentences.push(
      html`The step took ${ratio(length, predicted)} what was predicted;
        <code>spillway tune</code> measures this machine, and is best alone on it.`,
    );
  }
  return sentences;
}

function isFarOff(measured: number, predicted: number): boolean {
  return measured > predicted * FAR_OFF || predicted > measured * FAR_OFF;
}

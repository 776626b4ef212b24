/**
 * @file What a run adds up to, and the table at its end.
 */
import { formatBytes } from '../../../core/bytes.js';
import { LINKS, TIERS } from '../../../core/types.js';
import type { MetricsRecord } from '../../train/metrics-file.js';
import type {
  EvaluationRecord,
  RunStart,
  RunSummary,
  StepProgress,
} from '../../train/run-reporter.js';
import { alignColumns } from '../text-table.js';
import { formatCount } from './event-lines.js';
import { formatDuration } from './format-duration.js';

/** What the summary alone does not tell, gathered from a run's events. */
export class RunTotals {
  #firstStep = 0;
  #tokens = 0;
  #seconds = 0;
  #firstLoss: number | undefined;
  #lastLoss: number | undefined;
  #evaluation: EvaluationRecord | undefined;

  started(start: RunStart): void {
    this.#firstStep = start.firstStep;
  }

  stepped(progress: StepProgress): void {
    this.#tokens += progress.tokens;
    this.#seconds += progress.seconds;
  }

  logged(record: MetricsRecord): void {
    this.#firstLoss ??= record.loss;
    this.#lastLoss = record.loss;
  }

  evaluated(record: EvaluationRecord): void {
    this.#evaluation = record;
  }

  /** Lines of the table; the model is in `folder`. */
  render(summary: RunSummary, folder: string): string[] {
    return [
      ...this.#results(summary),
      '',
      ...alignColumns(
        [
          ['tier', 'peak', 'budget'],
          ...TIERS.map((tier) => [
            tier,
            formatBytes(summary.peak_bytes[tier]),
            formatBytes(summary.budget_bytes[tier]),
          ]),
        ],
        ['left', 'right', 'right'],
      ),
      '',
      ...this.#links(summary),
      '',
      `model saved in ${folder}`,
    ];
  }

  #results(summary: RunSummary): string[] {
    const steps = summary.global_step - this.#firstStep;
    const rows = [
      ['loss', this.#loss(summary)],
      ...this.#evaluationRows(summary),
      [
        'steps',
        this.#firstStep === 0 ? `${steps}` : `${summary.global_step}, ${steps} in this run`,
      ],
      ['tokens', formatCount(summary.num_tokens)],
      ['tokens/s', this.#seconds > 0 ? (this.#tokens / this.#seconds).toFixed(1) : '-'],
      ['wall time', formatDuration(summary.train_runtime)],
      ['peak RSS', formatBytes(summary.peak_rss_bytes)],
    ];
    if (summary.cpu_fallbacks > 0) rows.push(['CPU fallbacks', formatCount(summary.cpu_fallbacks)]);
    return alignColumns(rows);
  }

  /** First to last logging step, as the lines of metrics.jsonl have them. */
  #loss(summary: RunSummary): string {
    const mean = `mean ${summary.train_loss.toFixed(4)}`;
    if (this.#firstLoss === undefined || this.#lastLoss === undefined) return mean;
    return `${this.#firstLoss.toFixed(4)} -> ${this.#lastLoss.toFixed(4)}, ${mean}`;
  }

  #evaluationRows(summary: RunSummary): string[][] {
    const loss = summary.eval_loss ?? this.#evaluation?.eval_loss;
    if (loss === undefined) return [];
    const rows = [
      ['eval loss', loss.toFixed(4)],
      ['perplexity', Math.exp(loss).toPrecision(4)],
    ];
    if (summary.best_metric !== undefined) {
      const best = summary.best_model_checkpoint;
      const where = best === undefined ? '' : `, ${best}`;
      rows.push(['best', `${summary.best_metric.toFixed(4)}${where}`]);
    }
    return rows;
  }

  #links(summary: RunSummary): string[] {
    const { bytes_moved: moved, bytes_moved_per_step: steady } = summary;
    const rows = LINKS.map((link) => {
      const perStep = steady === undefined ? '-' : formatBytes(steady[link]);
      return [link, formatBytes(moved[link]), perStep];
    });
    return alignColumns([['link', 'moved', 'per step'], ...rows], ['left', 'right', 'right']);
  }
}

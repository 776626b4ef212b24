/**
 * @file What was measured, as text.
 */
import type { TuneReport } from '../train/tune-report.js';
import { alignColumns, type Alignment } from './text-table.js';

const NUMBERS: readonly Alignment[] = ['left', 'right', 'right', 'right'];

/** Rates in GB/s (10^9 bytes), the blocks' times, and where the results are. */
export function renderTuneTable(report: TuneReport): string {
  const { nvme, compute } = report;
  const rows = [
    ['upload', gigabytes(report.upload_bytes_per_second)],
    ['download', gigabytes(report.download_bytes_per_second)],
    ...(nvme === undefined
      ? []
      : [
          ['nvme read', gigabytes(nvme.read_bytes_per_second)],
          ['nvme write', gigabytes(nvme.write_bytes_per_second)],
        ]),
    ['AdamW', `${(report.adamw_elements_per_second / 1e9).toFixed(2)} G parameters/s`],
  ];
  const lines = [...alignColumns(rows, ['left', 'right'])];
  if (nvme !== undefined) {
    const rates = nvme.rates.map(({ mode, blockBytes, depth, bytesPerSecond }) => [
      mode,
      `${blockBytes / 2 ** 10} KiB`,
      String(depth),
      gigabytes(bytesPerSecond),
    ]);
    lines.push('', ...alignColumns([['nvme', 'block', 'depth', 'rate'], ...rates], NUMBERS));
  }
  if (compute.length > 0) {
    const operations = compute.map(({ operation, seconds, multiply_adds: multiplyAdds }) => [
      operation,
      `${(seconds * 1000).toFixed(2)} ms`,
      `${(multiplyAdds / seconds / 1e9).toFixed(1)} G multiply-adds/s`,
    ]);
    lines.push('', ...alignColumns([['operation', 'time', 'rate'], ...operations], NUMBERS));
  }
  lines.push('', `measured in ${report.seconds.toFixed(1)} s, kept in ${report.folder}`);
  return lines.join('\n');
}

function gigabytes(bytesPerSecond: number): string {
  return `${(bytesPerSecond / 1e9).toFixed(2)} GB/s`;
}

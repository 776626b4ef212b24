/**
 * @file Columns of text, aligned by spaces.
 */

/** Which side of its column a cell touches. */
export type Alignment = 'left' | 'right';

/** Spaces between columns. */
const GAP = '  ';

/**
 * One line per row, its cells padded to the widest of their column; no spaces at the end.
 *
 * @param alignments one per column; left where none is given
 */
export function alignColumns(
  rows: readonly (readonly string[])[],
  alignments: readonly Alignment[] = [],
): string[] {
  const columnCount = Math.max(0, ...rows.map((row) => row.length));
  const widths = Array.from({ length: columnCount }, (_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  return rows.map((row) =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        return alignments[column] === 'right' ? cell.padStart(width) : cell.padEnd(width);
      })
      .join(GAP)
      .trimEnd(),
  );
}

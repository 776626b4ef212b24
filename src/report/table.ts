/**
 * @file Tables, in a frame that scrolls where they are wider than the page.
 */
import { formatBytes } from '../../core/bytes.js';
import { html, type Filling, type Html } from './html.js';
import { count } from './text.js';

/** A table with named columns; the first cell of a row names it. */
export function table(
  name: string,
  head: readonly string[],
  rows: readonly (readonly Filling[])[],
): Html {
  return html`<div class="scroll" role="region" aria-label="${name}" tabindex="0">
    <table>
      <tr>
        ${head.map((title) => html`<th scope="col">${title}</th>`)}
      </tr>
      ${rows.map(
        ([first, ...cells]) =>
          html`<tr>
            <th scope="row">${first}</th>
            ${cells.map((cell) => html`<td>${cell}</td>`)}
          </tr>`,
      )}
    </table>
  </div>`;
}

/** Bytes in a binary unit; pointing at them shows all of them. */
export function bytesCell(bytes: number | undefined): Filling {
  if (bytes === undefined) return '-';
  return html`<span title="${count(bytes)} bytes">${formatBytes(bytes)}</span>`;
}

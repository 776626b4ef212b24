/**
 * @file The page's style sheet; follows the reader's choice of light or dark, and prints light.
 *
 * Forward, backward and update are blue, orange and teal, which all common kinds of colour blindness
 * tell apart; nothing is told by colour alone.
 */
import { Html } from './html.js';

const LIGHT = `--text: #1d2129; --soft: #5b6474; --grid: #e4e7ec; --page: #fff; --raised: #f6f7f9;
    --a: #2563eb; --b: #b45309; --c: #0f766e; --stall: #fde2e2; --wait: #f4a3a3; --wait-text: #5f1212;
    --limit: #b42318;`;

const DARK = `--text: #e5e7eb; --soft: #a3adbd; --grid: #344054; --page: #16181d; --raised: #1e2128;
    --a: #60a5fa; --b: #fbbf24; --c: #2dd4bf; --stall: #3a1d26; --wait: #8f3447; --wait-text: #ffe4e6;
    --limit: #fda29b;`;

export const STYLE = new Html(`
  :root { color-scheme: light dark; ${LIGHT} }
  @media (prefers-color-scheme: dark) { :root { ${DARK} } }
  * { box-sizing: border-box; }
  body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
    max-width: 66rem; margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.4rem; margin-bottom: 0.2rem; overflow-wrap: anywhere; }
  h2 { font-size: 1.15rem; margin: 2.4rem 0 0.6rem; }
  h3 { font-size: 1rem; margin: 1.4rem 0 0.4rem; }
  p { margin: 0.5rem 0; max-width: 46rem; overflow-wrap: anywhere; }
  .soft, figcaption { color: var(--soft); }
  code { overflow-wrap: anywhere; }
  ul { margin: 0.5rem 0; padding-left: 1.2rem; max-width: 46rem; }
  dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr));
    gap: 0.5rem; margin: 1rem 0; }
  dl div { background: var(--raised); border-radius: 6px; padding: 0.45rem 0.7rem; }
  dt { color: var(--soft); font-size: 0.85rem; }
  dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
  .scroll { overflow-x: auto; }
  .scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--a); outline-offset: 2px; }
  table { border-collapse: collapse; margin: 0.4rem 0; font-size: 0.94em; }
  th, td { padding: 0.2rem 0.8rem 0.2rem 0; text-align: right; font-variant-numeric: tabular-nums;
    white-space: nowrap; }
  th { font-weight: 500; color: var(--soft); }
  th:first-child { text-align: left; }
  tr { border-bottom: 1px solid var(--grid); }
  .wide th:first-child { max-width: 22rem; overflow: hidden; text-overflow: ellipsis; }
  .side { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr));
    gap: 0 2rem; }
  .side div { min-width: 0; }
  figure { margin: 0.8rem 0; min-width: 0; }
  .charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
    gap: 0 1.5rem; }
  svg { display: block; width: 100%; height: auto; }
  .charts svg { max-width: 40rem; }
  .timeline { min-width: 46rem; }
  text { fill: var(--soft); font-size: 12px; }
  text.x { text-anchor: middle; }
  text.y { text-anchor: end; dominant-baseline: middle; }
  text.mark { font-size: 10px; }
  text.wait { fill: var(--wait-text); font-size: 10.5px; dominant-baseline: middle; }
  .grid, .mark { stroke: var(--grid); }
  text.mark { stroke: none; }
  .mark { stroke-dasharray: 2 3; }
  .line { fill: none; stroke-width: 1.7; stroke: var(--ink); }
  .line.b { stroke-dasharray: 5 3; }
  .band { stroke: var(--ink); stroke-width: 1; opacity: 0.3; }
  .level { stroke-width: 1.4; stroke: var(--ink); }
  .level.limit { stroke-dasharray: 7 4; }
  .level.plan { stroke-dasharray: 2 3; }
  circle, rect { fill: var(--ink); }
  .a, .forward { --ink: var(--a); }
  .b, .backward { --ink: var(--b); }
  .c, .update { --ink: var(--c); }
  .stall { --ink: var(--stall); }
  .wait { --ink: var(--wait); }
  .limit { --ink: var(--limit); }
  .plan, .none { --ink: var(--soft); }
  .predicted { opacity: 0.5; }
  rect:hover { stroke: var(--text); stroke-width: 1; }
  .key { margin-left: 0.9rem; color: var(--soft); font-size: 0.9em; white-space: nowrap; }
  .key::before { content: ''; display: inline-block; width: 0.7em; height: 0.7em;
    margin-right: 0.35em; background: var(--ink); }
  .key.limit::before, .key.plan::before { height: 0; width: 1.1em; background: none;
    border-top: 2px dashed var(--ink); vertical-align: middle; }
  .key.thin::before { height: 0.3em; vertical-align: middle; opacity: 0.5; }
  .share { width: 7rem; height: 0.7rem; }
  details { margin: 0.2rem 0 0.6rem; font-size: 0.9rem; }
  summary { color: var(--soft); cursor: pointer; }
  @media print {
    :root { color-scheme: light; ${LIGHT} }
    body { max-width: none; margin: 0; font-size: 12px; }
    figure, tr, dl div { break-inside: avoid; }
    h2, h3 { break-after: avoid; }
    details { display: none; }
    .scroll { overflow: visible; }
    .timeline { min-width: 0; }
    .charts, .side { grid-template-columns: 1fr 1fr; }
    * { print-color-adjust: exact; }
  }
`);

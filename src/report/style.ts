/**
 * @file The page's style sheet; follows the reader's choice of light or dark.
 */
import { html } from './html.js';

export const STYLE = html`
  :root { color-scheme: light dark; --text: #1d2129; --soft: #667085; --grid: #e4e7ec; --page: #fff;
  --a: #2563eb; --b: #d97706; --c: #0f766e; --stall: #fecaca; } @media (prefers-color-scheme: dark)
  { :root { --text: #e5e7eb; --soft: #98a2b3; --grid: #344054; --page: #16181d; --a: #60a5fa; --b:
  #fbbf24; --c: #2dd4bf; --stall: #5b2330; } } body { font: 15px/1.5 system-ui, sans-serif; color:
  var(--text); background: var(--page); max-width: 62rem; margin: 2rem auto; padding: 0 1rem; } h1 {
  font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2.2rem; } table
  { border-collapse: collapse; margin: 0.8rem 0; } th, td { padding: 0.2rem 0.9rem 0.2rem 0;
  text-align: right; font-variant-numeric: tabular-nums; } th { font-weight: 500; color:
  var(--soft); } th:first-child { text-align: left; } .facts td { text-align: left; overflow-wrap:
  anywhere; } tr { border-bottom: 1px solid var(--grid); } p { color: var(--soft); } code {
  overflow-wrap: anywhere; } figure { margin: 1rem 0; } .charts { display: grid;
  grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 0 1.5rem; } svg { width: 100%;
  height: auto; } text { fill: var(--soft); font-size: 12px; } text.x { text-anchor: middle; }
  text.y { text-anchor: end; dominant-baseline: middle; } .grid { stroke: var(--grid); } .line {
  fill: none; stroke-width: 1.6; stroke: var(--ink); } circle, rect { fill: var(--ink); } .a,
  .forward { --ink: var(--a); } .b, .backward { --ink: var(--b); } .c, .update { --ink: var(--c); }
  .stall { --ink: var(--stall); } .key { margin-left: 0.9rem; color: var(--soft); font-size: 0.9em;
  } .key::before { content: ''; display: inline-block; width: 0.7em; height: 0.7em; margin-right:
  0.35em; background: var(--ink); }
`;

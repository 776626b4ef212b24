/**
 * @file Faults to inject into I/O: plain data that crosses worker threads, and the object that
 * decides, request by request, which of them strikes.
 */
import { assert } from '../../core/errors.js';

/** Operations that can fail. */
export type FaultOp = 'open' | 'reserve' | 'read' | 'write' | 'flush';

/**
 * How it fails. `short`: a prefix of whole 4096-byte pages is transferred, and no more. Only reads
 * and writes can be short.
 */
export type FaultKind = 'short' | 'EIO' | 'ENOSPC';

/** One rule. It applies to requests that match all its conditions. */
export interface FaultRule {
  readonly op: FaultOp;
  readonly kind: FaultKind;
  /** Part of the path. */
  readonly path?: string;
  /** The request contains this byte of the file (reads and writes). */
  readonly offset?: number;
  /** Only the n-th matching request, one-based. Without `nth` and `probability`: every one. */
  readonly nth?: number;
  /** Each matching request with this probability, drawn from the plan's seed. */
  readonly probability?: number;
}

/** Rules in order; the first one that strikes wins. */
export interface FaultPlan {
  readonly rules: readonly FaultRule[];
  /** Seed of all probabilities; default 0. */
  readonly seed?: number;
}

/** A request about to be made. */
export interface FaultQuery {
  readonly op: FaultOp;
  readonly path: string;
  readonly offset?: number;
  readonly length?: number;
}

/** Counts requests against a plan; one per backend, since `nth` counts what it has seen. */
export class FaultInjector {
  readonly #rules: readonly FaultRule[];
  readonly #seen: number[];
  #random: number;

  constructor(plan: FaultPlan = { rules: [] }) {
    for (const rule of plan.rules) {
      const transfers = rule.op === 'read' || rule.op === 'write';
      assert(rule.kind !== 'short' || transfers, 'only reads and writes can be short');
    }
    this.#rules = plan.rules;
    this.#seen = plan.rules.map(() => 0);
    this.#random = (plan.seed ?? 0) >>> 0;
  }

  /** The fault that strikes this request, or undefined. Every rule that matches counts it. */
  decide(query: FaultQuery): FaultKind | undefined {
    let struck: FaultKind | undefined;
    this.#rules.forEach((rule, index) => {
      if (!matches(rule, query)) return;
      const seen = (this.#seen[index] ?? 0) + 1;
      this.#seen[index] = seen;
      const byCount = rule.nth === undefined || rule.nth === seen;
      const byChance = rule.probability === undefined || this.#nextRandom() < rule.probability;
      if (byCount && byChance) struck ??= rule.kind;
    });
    return struck;
  }

  /** Mulberry32: uniform in [0, 1). */
  #nextRandom(): number {
    this.#random = (this.#random + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#random ^ (this.#random >>> 15), this.#random | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
}

/** Bytes that a short transfer of `length` bytes moves: about half, in whole pages, less than all. */
export function shortLength(length: number): number {
  return Math.floor(length / 2 / 4096) * 4096;
}

function matches(rule: FaultRule, query: FaultQuery): boolean {
  if (rule.op !== query.op) return false;
  if (rule.path !== undefined && !query.path.includes(rule.path)) return false;
  if (rule.offset === undefined) return true;
  const start = query.offset ?? 0;
  return rule.offset >= start && rule.offset < start + (query.length ?? 0);
}

/**
 * @file Who uses which bytes of the device's region: what must be over before they are filled
 * again.
 *
 * Areas may overlap one another (tiles of the head lie over the parameters' slots). An area that is
 * claimed waits for every operation that used bytes of it, and makes the content of areas that it
 * overlaps void.
 */
import type { OperationId } from './step-plan.js';

/** Bytes of the region that one fetch fills. */
export interface Area {
  readonly start: number;
  readonly end: number;
}

interface Claim extends Area {
  /** Operations that fill or read it. */
  readonly users: OperationId[];
  /** Called when something else takes bytes of it. */
  readonly onLost: () => void;
  isLost: boolean;
}

export class RegionTracker {
  readonly #claims: Claim[] = [];

  /**
   * Takes an area; returns the operations that must be over before it is filled.
   *
   * @param onLost called once, when another claim overlaps this one
   */
  claim(area: Area, onLost: () => void): { readonly after: OperationId[]; readonly claim: object } {
    const { start, end } = area;
    const after: OperationId[] = [];
    const claims = this.#claims;
    let keptCount = 0;
    for (const other of claims) {
      if (other.start < end && start < other.end) {
        for (const id of other.users) if (!after.includes(id)) after.push(id);
        if (!other.isLost) other.onLost();
        other.isLost = true;
        if (start <= other.start && other.end <= end) continue;
        // Of what is covered in part, the rest is still in use.
      }
      claims[keptCount] = other;
      keptCount += 1;
    }
    claims.length = keptCount;
    const claim: Claim = { start, end, users: [], onLost, isLost: false };
    claims.push(claim);
    return { after, claim };
  }

  /** Notes that an operation fills or reads what `claim` covers. */
  use(claim: object, operation: OperationId): void {
    (claim as Claim).users.push(operation);
  }
}

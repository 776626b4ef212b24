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
  readonly users: Set<OperationId>;
  /** Called when something else takes bytes of it. */
  readonly onLost: () => void;
  isLost: boolean;
}

export class RegionTracker {
  #claims: Claim[] = [];

  /**
   * Takes an area; returns the operations that must be over before it is filled.
   *
   * @param onLost called once, when another claim overlaps this one
   */
  claim(area: Area, onLost: () => void): { readonly after: OperationId[]; readonly claim: object } {
    const after = new Set<OperationId>();
    const kept: Claim[] = [];
    for (const other of this.#claims) {
      if (other.end <= area.start || other.start >= area.end) {
        kept.push(other);
        continue;
      }
      for (const id of other.users) after.add(id);
      if (!other.isLost) other.onLost();
      other.isLost = true;
      // Of what is covered in part, the rest is still in use.
      if (other.start < area.start || other.end > area.end) kept.push(other);
    }
    const claim: Claim = { ...area, users: new Set(), onLost, isLost: false };
    this.#claims = [...kept, claim];
    return { after: [...after], claim };
  }

  /** Notes that an operation fills or reads what `claim` covers. */
  use(claim: object, operation: OperationId): void {
    (claim as Claim).users.add(operation);
  }
}

/**
 * @file Every implementation of the kernels that this machine can run, for tests that hold for all:
 * the addon once per instruction set, and the TypeScript twins.
 */
import { kernels, native } from '../../tiers/native/binding.js';
import type { Isa, Kernels } from '../../tiers/native/native-binding.js';
import { portableKernels } from '../../tiers/native/portable/kernels.js';

export interface Implementation {
  readonly name: string;
  /** Runs `body` with these kernels in force. */
  run<T>(body: (kernels: Kernels) => T): T;
}

function nativeImplementation(isa: Isa): Implementation {
  return {
    name: `addon on ${isa}`,
    run: (body) => {
      const addon = native()!;
      const before = addon.isa();
      addon.setIsa(isa);
      try {
        return body(kernels());
      } finally {
        addon.setIsa(before);
      }
    },
  };
}

/** TypeScript first, then the addon's instruction sets, best first; none where it is not built. */
export const implementations: readonly Implementation[] = [
  { name: 'TypeScript', run: (body) => body(portableKernels) },
  ...(native()?.isaList() ?? []).map(nativeImplementation),
];

/** The same, as `[name, implementation]` rows for `describe.each`. */
export const implementationRows = implementations.map((each) => [each.name, each] as const);

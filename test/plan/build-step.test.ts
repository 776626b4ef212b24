// Goal: step plans are right whatever the timing: every input is there, no bytes are overwritten
// while in use, sums are canonical; and they load parameters as rarely as the slots allow.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { buildStep, stepBytes } from '../../src/plan/build-step.js';
import { layoutParameters } from '../../src/plan/parameter-layout.js';
import type { StepInput } from '../../src/plan/step-input.js';
import { bytesPerLink, bytesPerPhase, PHASES } from '../../src/plan/step-plan.js';
import { chainModel } from '../engine/paced-chain.js';
import { randomStep } from './random-step.js';
import { carryOut } from './symbolic-step.js';

describe('a step plan', () => {
  it('can be carried out in any order that its dependencies allow', () => {
    fc.assert(
      fc.property(randomStep, (input) => {
        const plan = buildStep(input);
        const { gradients, losses, updatedShards, leaked } = carryOut(input, plan);
        const all = input.microBatches.map((_, index) => index);
        // Each block's contributions are added in ascending order, every micro-batch's once.
        for (const [name, added] of gradients) expect(added, name).toEqual(all);
        expect(losses.toSorted((a, b) => a - b)).toEqual(all);
        const trained = input.layout.groups.filter(({ trainable }) => trainable);
        const shards = trained.flatMap(({ shards: own }) => own.map(({ id }) => id));
        expect(updatedShards.toSorted((a, b) => a - b)).toEqual(shards);
        // At the end only what is still on its way stays on the device.
        expect(leaked).toEqual([]);
      }),
      { numRuns: 120 },
    );
  });

  it('moves what is counted without it, phase by phase', () => {
    fc.assert(
      fc.property(randomStep, (input) => {
        const plan = buildStep(input);
        const counted = stepBytes(input);
        expect(counted).toEqual(bytesPerLink(plan));
        const phases = bytesPerPhase(plan);
        for (const phase of PHASES) {
          expect(phases[phase]).toEqual(bytesPerLink(plan, (one) => one.phase === phase));
        }
      }),
      { numRuns: 60 },
    );
  });

  it('depends on nothing but its input', () => {
    fc.assert(
      fc.property(randomStep, (input) => {
        expect(buildStep(input)).toEqual(buildStep(input));
      }),
      { numRuns: 30 },
    );
  });
});

/** A step over a chain of equal blocks. */
function chainStep(
  blockCount: number,
  slots: number,
  order: 'vertical' | 'horizontal',
  microBatchCount: number,
): StepInput {
  const shape = { blocks: blockCount, rows: 2, width: 8, params: 'matrix' } as const;
  const { blocks } = chainModel(shape);
  const layout = layoutParameters(blocks, 4096);
  const homes = layout.groups.map(
    () => ({ param: 'host', grad: 'host', optimizer: 'host' }) as const,
  );
  const places = order === 'vertical' ? microBatchCount : 1;
  return {
    blocks,
    layout,
    homes,
    dtype: 'float32',
    bf16Operands: false,
    plan: {
      order,
      homes,
      activationTiers: blocks.map((_, block) =>
        block === 0 ? [] : Array.from({ length: places }, () => 'device' as const),
      ),
      headWave: 1,
      useAccumulators: [],
    },
    region: {
      paramSlots: slots,
      paramSlotBytes: 256,
      activationSlots: 1,
      activationSlotBytes: 64,
      activationOffset: slots * 256,
      tileSlots: 0,
      tileSlotBytes: 0,
      tileOffset: 0,
      headOffset: 0,
      byteLength: slots * 256 + 64,
    },
    spillLag: 1,
    microBatches: Array.from({ length: microBatchCount }, () => ({
      activationLengths: blocks.map((_, index) => (index === 0 ? 0 : 16)),
      gatherRows: [],
      lossLength: 2,
      fieldBytes: { x: 64 },
    })),
    slotLengths: blocks.map((_, index) => (index === 0 ? 0 : 16)),
    clips: true,
  };
}

const sizes = fc.record({
  blocks: fc.integer({ min: 2, max: 24 }),
  slots: fc.integer({ min: 1, max: 24 }),
  microBatches: fc.integer({ min: 1, max: 6 }),
});

describe('loads of the parameters of L equal blocks through C slots', () => {
  const check = (
    order: 'vertical' | 'horizontal',
    expected: (L: number, C: number, G: number) => number,
  ): void => {
    fc.assert(
      fc.property(sizes, ({ blocks, slots, microBatches }) => {
        fc.pre(slots <= blocks);
        const plan = buildStep(chainStep(blocks, slots, order, microBatches));
        const fetches = plan.operations.filter(({ action }) => action.kind === 'fetch-params');
        expect(fetches).toHaveLength(plan.paramLoadCount);
        expect(plan.paramLoadCount).toBe(expected(blocks, slots, microBatches));
      }),
    );
  };

  it('number 2L-C in vertical order, at any number of micro-batches', () => {
    check('vertical', (L, C) => 2 * L - C);
  });

  it('number L+(2G-1)(L-C) in horizontal order', () => {
    check('horizontal', (L, C, G) => L + (2 * G - 1) * (L - C));
  });

  it('never wait for the operation just before, when there are two slots or more', () => {
    for (const slots of [2, 3, 5]) {
      const { operations } = buildStep(chainStep(12, slots, 'vertical', 2));
      for (const { id, action, after } of operations) {
        if (action.kind !== 'fetch-params') continue;
        const computes = operations.filter(
          ({ lane, id: other }) => lane === 'compute' && other < id,
        );
        const previousVisit = new Set(computes.slice(-2).map((operation) => operation.id));
        expect(
          after.some((other) => previousVisit.has(other)),
          `fetch ${id}`,
        ).toBe(false);
      }
    }
  });
});

/**
 * @file What gathers read of tables on NVMe where they read only the chunks that hold a wanted row:
 * it depends on the tokens, so it is added to a plan that is kept for all tokens of a shape.
 *
 * Pure.
 */
import type { Block, BlockAux } from '../model/block.js';
import type { ParameterLayout } from './parameter-layout.js';
import type { StepPlan } from './step-plan.js';
import { sparseReadBytes, type StateHomes } from './transfer-bytes.js';

/** What the bytes depend on besides the tokens. */
export interface SparseRowsInput extends StateHomes {
  readonly blocks: readonly Block[];
  readonly layout: ParameterLayout;
}

/**
 * The plan with those bytes.
 *
 * @param fields of each micro-batch
 * @param first tokens before these in their sequence
 */
export function withSparseRows(
  plan: StepPlan,
  input: SparseRowsInput,
  fields: readonly BlockAux['fields'][],
  first?: number,
): StepPlan {
  const [block] = input.blocks;
  const { layout, homes } = input;
  if (block?.kind !== 'row') return plan;
  const tables = block.gathers.map((gather) => {
    const address = layout.params.get(gather.param)!;
    return { gather, address, group: layout.groups[address.group]! };
  });
  if (tables.every(({ group }) => homes[group.index]!.param !== 'nvme')) return plan;
  const read = fields.map((one) =>
    tables.reduce(
      (sum, { gather, address, group }) =>
        sum + sparseReadBytes(group, address, gather.indices(one, first), input),
      0,
    ),
  );
  const operations = plan.operations.map((operation) => {
    const { action, bytes } = operation;
    if (action.kind !== 'fetch-rows') return operation;
    return { ...operation, bytes: { ...bytes, nvme_read: read[action.microBatch]! } };
  });
  return { ...plan, operations };
}

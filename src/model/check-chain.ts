/**
 * @file The rules of a chain of blocks, checked before anything is allocated.
 */
import { SpillwayError } from '../../core/errors.js';
import type { Block, ParamName, ParamSpec } from './block.js';

/**
 * Checks that block names are unique, that every parameter has one owner and a valid shape, that
 * blocks use what they own and only what somebody owns, and that row blocks stand first (and not
 * last) and tiled blocks last (and not first).
 *
 * @throws BLOCK_INVALID naming block and parameter
 */
export function checkChain(blocks: readonly Block[]): void {
  if (blocks.length === 0) {
    throw new SpillwayError('BLOCK_INVALID', 'a model has no blocks; give it at least one');
  }
  const owners = new Map<ParamName, { block: string; spec: ParamSpec }>();
  const names = new Set<string>();
  for (const block of blocks) {
    if (names.has(block.name)) refuse(block, 'its name is taken; name every block differently');
    names.add(block.name);
    for (const spec of block.owns) {
      checkSpec(block, spec);
      const owner = owners.get(spec.name);
      if (owner !== undefined) {
        refuse(block, `it owns ${spec.name}, which ${owner.block} owns; list it in uses only`);
      }
      owners.set(spec.name, { block: block.name, spec });
    }
  }
  for (const [index, block] of blocks.entries()) {
    checkUses(block, owners);
    if (block.kind === 'row' && index > 0) refuse(block, 'row blocks stand first in the chain');
    if (block.kind === 'tiled' && index < blocks.length - 1) {
      refuse(block, 'tiled blocks stand last in the chain');
    }
    if (block.kind === 'tiled' && index === 0) {
      refuse(block, 'tiled blocks take an input; put a block before it');
    }
    if (block.kind === 'row' && index === blocks.length - 1) {
      refuse(block, 'the last block returns losses; add one after the row block');
    }
  }
}

/** Checks one parameter's name and shape. */
function checkSpec(block: Block, { name, shape }: ParamSpec): void {
  if (name === '') refuse(block, 'a parameter has no name; name it');
  const valid = shape.every((size) => Number.isSafeInteger(size) && size > 0);
  if (!valid) {
    refuse(block, `${name} has shape [${shape.join(', ')}]; sizes are positive integers`);
  }
}

function checkUses(block: Block, owners: ReadonlyMap<ParamName, { spec: ParamSpec }>): void {
  const uses = new Set(block.uses);
  if (uses.size !== block.uses.length) {
    refuse(block, 'it lists a parameter twice in uses; list it once');
  }
  for (const { name } of block.owns) {
    if (!uses.has(name)) refuse(block, `it owns ${name} but does not use it; add it to uses`);
  }
  for (const name of uses) {
    if (!owners.has(name)) refuse(block, `it uses ${name}, which no block owns; add it to owns`);
  }
  if (block.kind === 'tiled') checkTiled(block, owners);
  if (block.kind === 'row') {
    const tables = block.gathers.map(({ param }) => param);
    if (new Set(tables).size !== tables.length) {
      refuse(block, 'it gathers from one table twice; gather all its rows at once');
    }
    for (const param of tables) {
      if (!uses.has(param)) refuse(block, `it gathers rows of ${param}, which it does not use`);
      checkMatrix(block, param, owners);
    }
  }
}

function checkTiled(
  block: Extract<Block, { kind: 'tiled' }>,
  owners: ReadonlyMap<ParamName, { spec: ParamSpec }>,
): void {
  if (!block.uses.includes(block.tiledParam)) {
    refuse(block, `its tiled parameter ${block.tiledParam} is not in uses; add it`);
  }
  checkMatrix(block, block.tiledParam, owners);
  if (!Number.isSafeInteger(block.tileRows) || block.tileRows < 1) {
    refuse(block, `tileRows is ${block.tileRows}; give a positive integer`);
  }
}

function checkMatrix(
  block: Block,
  name: ParamName,
  owners: ReadonlyMap<ParamName, { spec: ParamSpec }>,
): void {
  if (owners.get(name)?.spec.shape.length !== 2) {
    refuse(block, `${name} is read by rows and must be a matrix`);
  }
}

function refuse(block: Block, fact: string): never {
  throw new SpillwayError('BLOCK_INVALID', `block ${block.name} is invalid: ${fact}`, {
    block: block.name,
  });
}

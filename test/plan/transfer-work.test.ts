// Goal: what transfers do beside the bytes that cross links is counted from the model's shapes.
import { expect, it } from 'vitest';
import { readModelDefinition } from '../../src/checkpoint/read-model-definition.js';
import { layoutParameters } from '../../src/plan/parameter-layout.js';
import type { GroupHomes } from '../../src/plan/placement.js';
import type { Operation, Transfer } from '../../src/plan/step-plan.js';
import { transferWork } from '../../src/plan/transfer-work.js';
import { fixtureFolder } from '../engine/run-engine.js';

const { blocks } = await readModelDefinition(fixtureFolder('gpt2-tiny'));
const layout = layoutParameters(blocks, 2 ** 24);
const [rowBlock, layer] = blocks;
const head = blocks.at(-1)!;
if (rowBlock?.kind !== 'row' || head.kind !== 'tiled') throw new Error('a language model');
const table = rowBlock.gathers[0]!.param;
const { tileRows } = head;
const [V = 0, C = 0] = layout.params.get(table)!.spec.shape;

function workOf(home: GroupHomes['param'], action: Transfer, bytes: Operation['bytes'] = {}) {
  const homes = layout.groups.map(() => ({ param: home, grad: home, optimizer: home }));
  const lane = action.kind.startsWith('fetch') ? 'upload' : 'download';
  const operation: Operation = { id: 0, lane, phase: 'forward', action, bytes, after: [] };
  return transferWork({ blocks, layout, homes, dtype: 'float32' })(operation);
}

it('copies tiles of a matrix that is homed on the device within its memory', () => {
  const rows = Math.min(V, tileRows);
  const action = { kind: 'fetch-tile', tile: 0, offset: 0 } as const;
  expect(workOf('device', action).localBytes).toBe(rows * C * 4);
  expect(workOf('host', action, { upload: rows * C * 4 }).localBytes).toBe(0);
});

it('uploads what lies in memory parameter by parameter, what comes from NVMe chunk by chunk', () => {
  const action = { kind: 'fetch-params', block: 1, offset: 0 } as const;
  expect(layer!.kind).toBe('dense');
  const upload = 3 * 2 ** 20 + 4;
  expect(workOf('host', action, { upload }).pieces).toBe(layer!.uses.length);
  expect(workOf('nvme', action, { upload, nvme_read: upload }).pieces).toBe(4);
});

it('uploads rows together from memory, one by one from NVMe', () => {
  const action = { kind: 'fetch-rows', microBatch: 0, offset: 0 } as const;
  const upload = 40 * C * 4;
  expect(workOf('host', action, { upload }).pieces).toBe(1);
  expect(workOf('nvme', action, { upload, nvme_read: 2 ** 20 }).pieces).toBe(40);
});

it('has the host check gradients that come home, and add those that are not the first', () => {
  const write = (first: boolean) =>
    workOf(
      'host',
      { kind: 'write-gradients', block: 1, operation: 0, first },
      { download: 5 * 2 ** 20 },
    );
  expect(write(true)).toMatchObject({ pieces: 5, checkedBytes: 5 * 2 ** 20, addedBytes: 0 });
  expect(write(false)).toMatchObject({ checkedBytes: 5 * 2 ** 20, addedBytes: 5 * 2 ** 20 });
});

it('has the host go through the whole gradient of a table, however few rows were read', () => {
  const work = workOf('host', { kind: 'write-rows', param: table });
  expect(work).toMatchObject({ pieces: 0, checkedBytes: V * C * 4, addedBytes: V * C * 4 });
});

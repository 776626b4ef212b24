/**
 * @file Refuses a micro-batch that the memory plan has no room for, before any of it is used.
 */
import { SpillwayError } from '../../core/errors.js';
import type { MicroBatch } from '../model/block.js';

/**
 * Checks that the micro-batch has the example's fields and no others (documents of packed rows need
 * memory), none larger in any dimension, and that its weight counts loss terms.
 *
 * @throws DATA_INVALID naming the field
 */
export function checkBatch(batch: MicroBatch, example: MicroBatch): void {
  if (!Number.isFinite(batch.weight) || batch.weight < 0) {
    throw new SpillwayError(
      'DATA_INVALID',
      `the weight of a micro-batch is ${batch.weight}; give its number of loss terms`,
    );
  }
  const surplus = Object.keys(batch.fields).find((name) => example.fields[name] === undefined);
  if (surplus !== undefined) {
    throw new SpillwayError(
      'DATA_INVALID',
      `a micro-batch has the field ${surplus}, which the example batch lacks; give an example batch with it`,
      { fields: Object.keys(example.fields) },
    );
  }
  for (const [name, largest] of Object.entries(example.fields)) {
    const field = batch.fields[name];
    if (field === undefined) {
      throw new SpillwayError(
        'DATA_INVALID',
        `a micro-batch lacks the field ${name}, which the example batch has`,
        { fields: Object.keys(batch.fields) },
      );
    }
    const { data, shape } = field;
    if (data.length !== shape.reduce((product, size) => product * size, 1)) {
      throw new SpillwayError('DATA_INVALID', `the data of field ${name} do not fill its shape`, {
        shape: `[${shape.join(', ')}]`,
        length: data.length,
      });
    }
    const fits =
      shape.length === largest.shape.length &&
      shape.every((size, axis) => size <= (largest.shape[axis] ?? 0));
    if (fits) continue;
    throw new SpillwayError(
      'DATA_INVALID',
      `field ${name} of a micro-batch is larger than memory is planned for; give an example batch of the largest shapes`,
      { shape: `[${shape.join(', ')}]`, example: `[${largest.shape.join(', ')}]` },
    );
  }
}

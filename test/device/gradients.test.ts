// Goal: registering gradients completes tfjs's one registry and overrides nothing in it.
import * as tf from '@tensorflow/tfjs-core';
import type { Tensor } from '@tensorflow/tfjs-core';
import { expect, test, vi } from 'vitest';
import { ensureGradients } from '../../tiers/device/gradients.js';
import { useCpuBackend } from './tfjs-setup.js';

useCpuBackend();

test('says what to run when the bundle has not been built', async () => {
  vi.resetModules();
  vi.doMock('node:fs', () => ({ existsSync: () => false }));
  const fresh = await import('../../tiers/device/gradients.js');
  vi.doUnmock('node:fs');
  expect(() => fresh.ensureGradients()).toThrow(
    expect.objectContaining({
      code: 'INTERNAL',
      message: expect.stringContaining('npm run build') as unknown,
    }),
  );
});

test('adds the missing gradients, keeps one that a user registered, and warns of nothing', () => {
  const warn = vi.spyOn(console, 'warn').mockImplementation(() => undefined);
  const engine = tf.engine();
  const own: tf.GradConfig = {
    kernelName: 'Square',
    inputsToSave: ['x'],
    gradFunc: (dy) => ({ x: () => tf.mul(dy as Tensor, 100) }),
  };
  tf.registerGradient(own);
  expect(tf.getGradient('Tanh') as unknown).toBeUndefined();
  ensureGradients();
  ensureGradients();
  expect(tf.getGradient('Square')).toBe(own);
  expect(tf.engine()).toBe(engine);
  const x = tf.tensor1d([0]);
  const [square, tanh] = [tf.square, tf.tanh].map((f) => tf.grad((t: Tensor) => f(t))(x));
  expect(square!.dataSync()[0]).toBe(100);
  expect(tanh!.dataSync()[0]).toBe(1);
  expect(warn).not.toHaveBeenCalled();
  warn.mockRestore();
  tf.dispose([x, square!, tanh!]);
});

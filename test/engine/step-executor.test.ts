// Goal: operations start when what they wait for is over, and no sooner; a failed step ends cleanly.
import { afterEach, describe, expect, it, vi } from 'vitest';
import { silentLogger } from '../../core/logger.js';
import { Engine } from '../../src/engine/engine.js';
import { GradientWriter } from '../../src/engine/gradient-writer.js';
import { LossSum } from '../../src/engine/loss-sum.js';
import {
  StepExecutor,
  type ExecutorOptions,
  type Span,
  type StartedStep,
} from '../../src/engine/step-executor.js';
import type { StepContext } from '../../src/engine/step-transfers.js';
import type { Action, Operation, StepPlan } from '../../src/plan/step-plan.js';
import type { Turns } from '../../tiers/tier-manager.js';
import { smallBatch, smallModel } from './small-model.js';

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

type Draft = Partial<Omit<Operation, 'action'>> & { readonly action: Action };

const compute = (more: Partial<Operation> = {}): Draft => ({
  action: { kind: 'end', microBatch: 0 },
  ...more,
});

const fetch = (more: Partial<Operation> = {}): Draft => ({
  lane: 'upload',
  action: { kind: 'fetch-params', block: 3, offset: 0 },
  bytes: { upload: 8 },
  ...more,
});

const spill = (more: Partial<Operation> = {}): Draft => ({
  lane: 'download',
  action: { kind: 'spill-activation', block: 1, microBatch: 0, operation: 0 },
  bytes: { download: 8, nvme_write: 16 },
  ...more,
});

const update = (group: number, more: Partial<Operation> = {}): Draft => ({
  lane: 'update',
  action: { kind: 'update', shard: group, group, length: 1 },
  ...more,
});

function planOf(...drafts: readonly Draft[]): StepPlan {
  const operations = drafts.map((draft, id): Operation => ({
    id,
    lane: 'compute',
    phase: 'forward',
    bytes: {},
    after: [],
    ...draft,
  }));
  return { operations, paramLoadCount: 0 };
}

/** An executor whose operations begin, move and end when the test says so. */
class Puppets {
  readonly begun: string[] = [];
  cleared = 0;
  readonly executor: StepExecutor;
  readonly #ends = new Map<string, { resolve: () => void; reject: (error: unknown) => void }>();
  readonly #turns = new Map<string, Turns>();
  readonly #computed: (() => void)[] = [];
  #transfer = 0;

  constructor(options: ExecutorOptions = {}) {
    this.executor = new StepExecutor(
      { computed: () => new Promise<void>((resolve) => this.#computed.push(resolve)) },
      {
        begin: () => undefined,
        run: ({ id }) => {
          this.begun.push(`compute ${id}`);
          return Promise.resolve();
        },
        clear: () => {
          this.cleared += 1;
        },
      },
      {
        run: (_action, _step, turns) => {
          this.#transfer += 1;
          const name = `transfer ${this.#transfer}`;
          this.#turns.set(name, turns);
          return this.#wait(name);
        },
      },
      options,
    );
  }

  start(plan: StepPlan): StartedStep {
    const started = this.executor.start(plan, STEP, {
      norm: () => this.begun.push('norm'),
      update: (shard, _group, onStart) => {
        onStart();
        return this.#wait(`update ${shard}`);
      },
    });
    started.finished.catch(() => undefined);
    return started;
  }

  /** The oldest launched operation has run. */
  async ran(): Promise<void> {
    this.#computed.shift()!();
    await settle();
  }

  async end(name: string): Promise<void> {
    this.#ends.get(name)!.resolve();
    await settle();
  }

  async fail(name: string, error: Error): Promise<void> {
    this.#ends.get(name)!.reject(error);
    await settle();
  }

  async move(name: string, link: 'download' | 'upload', bytes: number): Promise<void> {
    await this.#turns.get(name)!.take(link, bytes, () => Promise.resolve());
    await settle();
  }

  #wait(name: string): Promise<void> {
    this.begun.push(name);
    return new Promise((resolve, reject) => this.#ends.set(name, { resolve, reject }));
  }
}

/** Whether a promise has settled, and how. */
function stateOf(promise: Promise<unknown>): Promise<'pending' | 'done' | 'failed'> {
  return Promise.race([
    promise.then(
      () => 'done' as const,
      () => 'failed' as const,
    ),
    settle().then(() => 'pending' as const),
  ]);
}

const fine = (): Promise<void> => Promise.resolve();
const STEP: StepContext = {
  step: 1,
  aux: [],
  losses: () => new LossSum('last'),
  inputShape: () => [],
};

afterEach(() => void vi.restoreAllMocks());

describe('compute', () => {
  it('is launched in program order, at most two ahead of what has run', async () => {
    const puppets = new Puppets();
    const { finished } = puppets.start(planOf(compute(), compute(), compute(), compute()));
    await settle();
    expect(puppets.begun).toEqual(['compute 0', 'compute 1']);
    await puppets.ran();
    expect(puppets.begun).toEqual(['compute 0', 'compute 1', 'compute 2']);
    await puppets.ran();
    await puppets.ran();
    await puppets.ran();
    expect(await stateOf(finished)).toBe('done');
    expect(puppets.cleared).toBe(1);
  });

  it('does not overtake an operation that waits for a transfer', async () => {
    const puppets = new Puppets();
    puppets.start(planOf(fetch(), compute({ after: [0] }), compute()));
    await settle();
    expect(puppets.begun).toEqual(['transfer 1']);
    await puppets.end('transfer 1');
    expect(puppets.begun).toEqual(['transfer 1', 'compute 1', 'compute 2']);
  });

  it('frees what a spill has read though its bytes are on their way to NVMe', async () => {
    const puppets = new Puppets();
    puppets.start(planOf(compute(), spill({ after: [0] }), compute({ copied: [1] })));
    await settle();
    await puppets.ran();
    expect(puppets.begun).toEqual(['compute 0', 'transfer 1']);
    await puppets.move('transfer 1', 'download', 4);
    expect(puppets.begun).toHaveLength(2);
    await puppets.move('transfer 1', 'download', 4);
    expect(puppets.begun).toEqual(['compute 0', 'transfer 1', 'compute 2']);
  });
});

describe('updates', () => {
  it('outlive their step, and hold back what the next one reads of their group alone', async () => {
    const puppets = new Puppets();
    const plan = planOf(
      fetch({ fences: [0] }),
      fetch({ fences: [1] }),
      { lane: 'update', action: { kind: 'norm' }, after: [0, 1] },
      update(0, { after: [2] }),
      update(1, { after: [2] }),
    );
    const first = puppets.start(plan);
    await settle();
    await puppets.end('transfer 1');
    await puppets.end('transfer 2');
    expect(await stateOf(first.finished)).toBe('done');
    expect(await stateOf(first.updated)).toBe('pending');
    puppets.begun.length = 0;
    puppets.start(plan);
    await settle();
    expect(puppets.begun).toEqual([]);
    await puppets.end('update 1');
    expect(puppets.begun).toEqual(['transfer 3']);
    await puppets.end('update 0');
    expect(puppets.begun).toEqual(['transfer 3', 'transfer 4']);
    expect(await stateOf(first.updated)).toBe('done');
  });

  it('that fail are reported by their step and by the next one', async () => {
    const puppets = new Puppets();
    const plan = planOf(fetch({ fences: [0] }), update(0, { after: [0] }));
    const first = puppets.start(plan);
    await settle();
    await puppets.end('transfer 1');
    const second = puppets.start(plan);
    await puppets.fail('update 0', new Error('disk full'));
    await expect(first.updated).rejects.toThrow('disk full');
    await expect(second.finished).rejects.toThrow('disk full');
    expect(puppets.begun).toEqual(['transfer 1', 'update 0']);
  });
});

describe('a failed operation', () => {
  it('ends the step with the first error, once all that is under way has ended', async () => {
    const puppets = new Puppets();
    const { finished, updated } = puppets.start(
      planOf(
        fetch(),
        fetch(),
        fetch(),
        compute({ after: [0] }),
        fetch({ after: [1] }),
        compute(),
        update(0, { after: [4] }),
      ),
    );
    await settle();
    expect(puppets.begun).toEqual(['transfer 1', 'transfer 2', 'transfer 3']);
    await puppets.fail('transfer 2', new Error('first'));
    expect(await stateOf(finished)).toBe('pending');
    // Ready now, but nothing starts after a failure.
    await puppets.end('transfer 1');
    await puppets.fail('transfer 3', new Error('second'));
    await expect(finished).rejects.toThrow('first');
    await expect(updated).rejects.toThrow('first');
    expect(puppets.begun).toEqual(['transfer 1', 'transfer 2', 'transfer 3']);
    expect(puppets.cleared).toBe(1);
  });

  it.each([
    ['a kernel', 'run'],
    ['the device', 'computed'],
  ] as const)('may be %s', async (_, where) => {
    const broken = (): Promise<void> => Promise.reject(new Error('broken'));
    let cleared = 0;
    const executor = new StepExecutor(
      { computed: where === 'computed' ? broken : fine },
      {
        begin: () => undefined,
        run: where === 'run' ? broken : fine,
        clear: () => void (cleared += 1),
      },
      { run: fine },
    );
    const hooks = { norm: () => undefined, update: fine };
    const { finished } = executor.start(planOf(compute(), compute()), STEP, hooks);
    await expect(finished).rejects.toThrow('broken');
    expect(cleared).toBe(1);
  });

  it('leaves no tensor of the step on the device', async () => {
    const engine = await Engine.create({
      model: smallModel(),
      exampleBatch: smallBatch(),
      deviceMemory: '16MiB',
      hostMemory: '64MiB',
      offloadParam: 'cpu',
      optimizerWorkers: 1,
    });
    try {
      const held = engine.heldBytes.device;
      vi.spyOn(GradientWriter.prototype, 'writeDense').mockRejectedValue(new Error('lost'));
      await expect(engine.step([smallBatch()])).rejects.toThrow('lost');
      expect(engine.heldBytes.device).toBe(held);
      await expect(engine.step([smallBatch()])).rejects.toMatchObject({ code: 'ENGINE_FAILED' });
    } finally {
      await engine.close();
    }
  });
});

describe('the watchdog', () => {
  it('names the oldest operation when nothing moves, until something does', async () => {
    const warnings: string[] = [];
    const logger = { ...silentLogger, warn: (message: string) => void warnings.push(message) };
    const puppets = new Puppets({ logger, watchdogMs: 20 });
    const { updated } = puppets.start(planOf(compute(), fetch(), fetch()));
    await settle();
    await puppets.ran();
    await vi.waitFor(() => expect(warnings.length).toBeGreaterThan(0), { timeout: 5000 });
    expect(warnings[0]).toMatch(
      /^nothing has moved for 0\.02 s; the oldest operation is fetch-params \(operation 1, block 3, offset 0\), for 0 s$/,
    );
    await puppets.end('transfer 1');
    await puppets.end('transfer 2');
    await updated;
    const count = warnings.length;
    await new Promise((resolve) => setTimeout(resolve, 60));
    expect(warnings).toHaveLength(count);
  });
});

describe('a paced executor', () => {
  it('spends the planned time on each operation, one after the other', async () => {
    const spans: Span[] = [];
    const executor = new StepExecutor(
      { computed: fine },
      { begin: () => undefined, run: fine, clear: () => undefined },
      { run: fine },
      {
        pace: ({ action }) => (action.kind === 'update' ? 0.004 : 0.01),
        onSpan: (span) => spans.push(span),
      },
    );
    const plan = planOf(compute(), compute(), compute(), update(0), update(1), update(2));
    const start = performance.now();
    await executor.start(plan, STEP, { norm: () => undefined, update: fine }).updated;
    expect(performance.now() - start).toBeGreaterThanOrEqual(30);
    const computes = spans.filter(({ lane }) => lane === 'compute');
    const updates = spans.filter(({ lane }) => lane === 'update');
    expect([computes.length, updates.length]).toEqual([3, 3]);
    for (const index of [1, 2]) {
      expect(computes[index]!.start).toBeGreaterThanOrEqual(computes[index - 1]!.end);
      expect(updates[index]!.start - updates[index - 1]!.start).toBeGreaterThan(3.9);
    }
  });
});

/**
 * @file Matrix products beside torch's (MKL's sgemm), on the shapes of transformer blocks.
 *
 * Rounds alternate between this process and a persistent torch process on the same number of
 * threads. `ratio` is torch's time over ours: above 1 we are faster.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { deviceThreads } from '../tiers/device/native/device-threads.js';
import { gemmArgs } from '../tiers/device/native/kernels/gemm-args.js';
import { native } from '../tiers/native/binding.js';
import { createSlab } from '../tiers/host/slab.js';
import { TorchProcess } from './peer/torch-process.js';

interface Case {
  readonly batch: number;
  readonly m: number;
  readonly k: number;
  readonly n: number;
  /** Transposition of a and of b, N or T. */
  readonly form: string;
  /** The second operand is bf16; torch's then is the float32 copy that this spares. */
  readonly bf16?: boolean;
}

const FORMS = ['NN', 'NT', 'TN'];
const BLOCKS = [
  [1, 128, 768, 2304],
  [1, 128, 768, 3072],
  [1, 128, 3072, 768],
  [1, 512, 768, 3072],
  [1, 128, 2048, 5632],
  [1, 1024, 1024, 1024],
  // Scores and values of 12 heads of 64, for 128 and 512 tokens.
  [12, 128, 64, 128],
  [12, 128, 128, 64],
  [12, 512, 64, 512],
  [12, 512, 512, 64],
] as const;
// Few tokens: what is measured is how fast the weight streams by.
const SKINNY = [
  [1, 16, 768, 3072],
  [1, 1, 768, 3072],
] as const;

const CASES: Case[] = [
  ...[...BLOCKS, ...SKINNY].flatMap(([batch, m, k, n]) =>
    FORMS.map((form) => ({ batch, m, k, n, form })),
  ),
  ...[...BLOCKS.slice(0, 6), ...SKINNY].flatMap(([batch, m, k, n]) =>
    ['NN', 'NT'].map((form) => ({ batch, m, k, n, form, bf16: true })),
  ),
];

const ROUNDS = 9;
/** A round's length: long beside a timer's error, short beside the noise of a shared machine. */
const ROUND_SECONDS = 0.012;
/** torch's threads spin for some milliseconds after a product. */
const PAUSE_MS = 5;

const median = (values: number[]) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)]!;

/** Runs the case once per call. */
function ours({ batch, m, k, n, form, bf16 }: Case, threads: number): () => void {
  const addon = native();
  if (addon === undefined) throw new Error('the product is a native kernel; build the addon first');
  const [transposeA, transposeB] = [form[0] === 'T', form[1] === 'T'];
  const [aLength, bLength, cLength] = [batch * m * k, batch * k * n, batch * m * n];
  const { bytes } = createSlab(4 * (aLength + bLength + cLength));
  const floats = new Float32Array(bytes.buffer, bytes.byteOffset, aLength + bLength + cLength);
  for (let i = 0; i < aLength + bLength; i++) {
    floats[i] = (Math.imul(i + 1, 2_654_435_761) >>> 8) / 2 ** 23 - 1;
  }
  const bOffset = 4 * aLength;
  if (bf16 === true) {
    const halves = new Uint16Array(bytes.buffer, bytes.byteOffset + bOffset, bLength);
    addon.f32ToBf16(floats.slice(aLength, aLength + bLength), halves);
  }
  const [leadingA, leadingB] = [transposeA ? m : k, transposeB ? k : n];
  const args = gemmArgs({
    ...{ m, n, k, batch },
    a: { offset: 0, transposed: transposeA, leading: leadingA, batchStride: m * k },
    b: {
      offset: bOffset,
      type: bf16 === true ? 'bfloat16' : 'float32',
      transposed: transposeB,
      leading: leadingB,
      batchStride: k * n,
    },
    c: { offset: 4 * (aLength + bLength) },
  });
  const [id, list] = [addon.kernelId('gemm'), Float64Array.from(args)];
  return () => {
    addon.runKernelNow(id, bytes, list, threads);
  };
}

function seconds(run: () => void, repeats: number): number {
  const start = process.hrtime.bigint();
  for (let i = 0; i < repeats; i++) run();
  return Number(process.hrtime.bigint() - start) / 1e9 / repeats;
}

async function benchCase(each: Case, threads: number, torch: TorchProcess | undefined) {
  const { batch, m, k, n, form, bf16 } = each;
  const run = ours(each, threads);
  run();
  const once = Math.max(seconds(run, 1), 1e-6);
  const repeats = Math.ceil(ROUND_SECONDS / once);
  await torch?.ask({ threads, batch, m, n, k, form });
  const [times, peers]: [number[], number[]] = [[], []];
  const steps = [
    () => times.push(seconds(run, repeats)),
    async () => {
      if (torch === undefined) return;
      peers.push((await torch.ask({ repeats }))['seconds']!);
      await sleep(PAUSE_MS);
    },
  ];
  for (let round = 0; round < ROUNDS; round++) {
    // Which of the two goes first changes from round to round.
    for (const step of round % 2 === 0 ? steps : steps.toReversed()) await step();
  }
  const flop = 2e-9 * batch * m * n * k;
  const round3 = (value: number) => Number(value.toPrecision(3));
  const peer =
    torch === undefined
      ? { torch: 'skipped: no torch' }
      : {
          ratio: round3(median(peers.map((time, i) => time / times[i]!))),
          torchGflops: round3(flop / median(peers)),
        };
  const name = `gemm ${batch > 1 ? `${batch}x` : ''}${m}x${k}x${n} ${form}${bf16 === true ? ' bf16' : ''}`;
  const line = {
    case: name,
    threads,
    ...peer,
    gflops: round3(flop / median(times)),
    rounds: ROUNDS,
  };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** `SPILLWAY_THREADS` (default: the cores) is the largest number of threads tried, after 1. */
export default async function benchGemm(): Promise<void> {
  const torch = TorchProcess.start(fileURLToPath(new URL('gemm_torch.py', import.meta.url)));
  const counts = deviceThreads() > 1 ? [1, deviceThreads()] : [1];
  for (const threads of counts) {
    for (const each of CASES) await benchCase(each, threads, torch);
  }
  await torch?.close();
}

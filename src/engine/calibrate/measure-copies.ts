/**
 * @file Measures copies between host memory and the device, and what the host does with gradients
 * that have come: pieces one after the other, as a transfer of a step moves them, beside kernels.
 * Two sizes tell the time per byte from the time per piece.
 */
import type { Device } from '../../../tiers/device/device.js';
import type { LinkCost } from '../../plan/costs.js';
import { PIECE_BYTES } from '../../plan/simulated-link.js';
import { besideCompute } from './beside-compute.js';
import { QUARTER_BYTES, type CopyArea } from './copy-area.js';
import type { CopyCosts } from './cost-store.js';
import { meanSeconds, type Deadline } from './deadline.js';

const SMALL_BYTES = 2 ** 16;

/**
 * Seconds per byte and per piece of uploads and downloads, and per byte of the host's passes over
 * gradients.
 *
 * @throws DEVICE_OUT_OF_MEMORY
 */
export function measureCopies(device: Device, area: CopyArea, until: Deadline): Promise<CopyCosts> {
  return besideCompute(device, async () => {
    const upload = await linkCost(area, until.part(1 / 3), (at, bytes) => area.upload(at, bytes));
    const download = await linkCost(area, until.part(1 / 2), (at, bytes) =>
      area.download(at, bytes),
    );
    const passSeconds = (mode: 'replace' | 'add', deadline: Deadline): Promise<number> =>
      meanSeconds(deadline, async () => {
        let seconds = 0;
        for (let at = 0; at < area.byteLength; at += QUARTER_BYTES) {
          seconds += (await area.gradient(at, QUARTER_BYTES, mode)).host;
        }
        return seconds;
      });
    const checked = await passSeconds('replace', until.part(1 / 2));
    const added = await passSeconds('add', until);
    const host = {
      checkedBytesPerSecond: area.byteLength / checked,
      // Adding goes through the same bytes again; noise may hide it.
      addedBytesPerSecond: area.byteLength / Math.max(added - checked, checked / 4),
    };
    return { upload, download, host };
  });
}

async function linkCost(
  area: CopyArea,
  until: Deadline,
  copy: (at: number, bytes: number) => Promise<void>,
): Promise<LinkCost> {
  const copies = area.byteLength / PIECE_BYTES;
  const secondsOf = (bytes: number, deadline: Deadline): Promise<number> =>
    meanSeconds(deadline, async () => {
      const start = performance.now();
      for (let index = 0; index < copies; index += 1) await copy(index * PIECE_BYTES, bytes);
      return (performance.now() - start) / 1000 / copies;
    });
  const large = await secondsOf(PIECE_BYTES, until.part(1 / 2));
  const small = await secondsOf(SMALL_BYTES, until);
  const perByte = Math.max((large - small) / (PIECE_BYTES - SMALL_BYTES), large / PIECE_BYTES / 4);
  return {
    bytesPerSecond: 1 / perByte,
    secondsPerPiece: Math.max(0, large - perByte * PIECE_BYTES),
  };
}

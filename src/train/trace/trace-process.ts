/**
 * @file One process of a trace: its tracks, named when they are first used, and slices on them.
 *
 * A track per lane, and more where a lane runs several pieces at once, so that nothing overlaps on a
 * track. Times are microseconds of the trace.
 */
import { LANES } from '../../../core/types.js';
import { SubTracks } from './sub-tracks.js';
import type { MetadataName, SliceArguments, TraceEvent, Track } from './trace-event.js';

/** In the order in which they are shown. */
const ALL_TRACKS: readonly Track[] = [...LANES, 'host'];

/** Tracks of other things; `stalls` stands below compute. */
export const OTHER_TRACKS = { step: 1, stalls: 1999 } as const;

/** Threads between one lane's first and the next lane's; more than a lane runs at once. */
const TRACKS_PER_LANE = 1000;

/** What is on a slice. */
export interface SliceFacts {
  readonly name: string;
  readonly cat: string;
  readonly start: number;
  readonly end: number;
  readonly args: SliceArguments;
}

/** Where a slice was put; times are those that were written. */
export interface PlacedSlice {
  readonly tid: number;
  readonly ts: number;
  readonly dur: number;
}

export class TraceProcess {
  readonly #pid: number;
  readonly #write: (event: TraceEvent) => void;
  readonly #tracks: Readonly<Record<Track, SubTracks>>;
  readonly #named = new Set<number>();

  /** Names the process. @throws what writing throws, as all methods do */
  constructor(pid: number, name: string, write: (event: TraceEvent) => void) {
    this.#pid = pid;
    this.#write = write;
    const tracks = ALL_TRACKS.map((track) => [track, new SubTracks()] as const);
    this.#tracks = Object.fromEntries(tracks) as Record<Track, SubTracks>;
    this.#metadata('process_name', 0, { name });
    this.#metadata('process_sort_index', 0, { sort_index: pid });
  }

  /** A slice of an operation; those of one track come in the order in which they ended. */
  operation(track: Track, facts: Omit<SliceFacts, 'cat'>): PlacedSlice {
    const part = this.#tracks[track].place(facts.start, facts.end);
    const tid = (ALL_TRACKS.indexOf(track) + 1) * TRACKS_PER_LANE + part;
    return this.#slice(tid, part === 0 ? track : `${track} ${part + 1}`, { ...facts, cat: track });
  }

  /** A slice of something else. */
  other(track: keyof typeof OTHER_TRACKS, facts: SliceFacts): PlacedSlice {
    return this.#slice(OTHER_TRACKS[track], track, facts);
  }

  #slice(tid: number, track: string, { name, cat, start, end, args }: SliceFacts): PlacedSlice {
    this.#name(tid, track);
    const ts = toNanoseconds(start);
    // Of rounded times, so that neighbours that touch do not overlap.
    const dur = toNanoseconds(toNanoseconds(end) - ts);
    this.#write({ ph: 'X', name, cat, pid: this.#pid, tid, ts, dur, args });
    return { tid, ts, dur };
  }

  #name(tid: number, name: string): void {
    if (this.#named.has(tid)) return;
    this.#named.add(tid);
    this.#metadata('thread_name', tid, { name });
    this.#metadata('thread_sort_index', tid, { sort_index: tid });
  }

  #metadata(
    name: MetadataName,
    tid: number,
    args: { readonly name: string } | { readonly sort_index: number },
  ): void {
    this.#write({ ph: 'M', name, pid: this.#pid, tid, args });
  }
}

/** A time in a slice, at a share of its length below 1; arrows begin and end strictly within. */
export function within({ ts, dur }: PlacedSlice, share: number): number {
  return toNanoseconds(ts + Math.floor(dur * 1000 * share) / 1000);
}

/** Microseconds to the nanosecond. */
export function toNanoseconds(microseconds: number): number {
  return Math.round(microseconds * 1000) / 1000;
}

/**
 * @file Durations for people.
 */

/** `0.4 s`, `59 s`, `3:25`, `1:02:03`, `2d 3:04:05`; `?` for what is not finite. */
export function formatDuration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return '?';
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const two = (value: number): string => String(value).padStart(2, '0');
  const minutes = Math.floor(whole / 60);
  const hours = Math.floor(minutes / 60);
  if (hours === 0) return `${minutes}:${two(whole % 60)}`;
  const days = Math.floor(hours / 24);
  const clock = `${two(minutes % 60)}:${two(whole % 60)}`;
  return days === 0 ? `${hours}:${clock}` : `${days}d ${hours % 24}:${clock}`;
}

/**
 * @file Python's `strftime` in the C locale, local time, for `strftime_now` of chat templates.
 */

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];

/** Characters of an abbreviated name. */
const SHORT = 3;

/** `format` with its directives replaced; a directive that is not known stays, as in glibc. */
export function strftime(format: string, date: Date): string {
  return format.replaceAll(/%(-?)([A-Za-z%])/g, (all, bare: string, directive: string) => {
    const value = directiveOf(directive, date);
    if (value === undefined) return all;
    return bare === '' ? value : value.replace(/^[0 ]+(?=\d)/, '');
  });
}

function directiveOf(directive: string, date: Date): string | undefined {
  const two = (value: number) => String(value).padStart(2, '0');
  const hour12 = date.getHours() % 12 === 0 ? 12 : date.getHours() % 12;
  const day = DAYS[date.getDay()]!;
  const month = MONTHS[date.getMonth()]!;
  const dayOfYear = () => {
    const start = Date.UTC(date.getFullYear(), 0, 1);
    const today = Date.UTC(date.getFullYear(), date.getMonth(), date.getDate());
    return Math.round((today - start) / 86_400_000) + 1;
  };
  switch (directive) {
    case 'Y':
      return String(date.getFullYear());
    case 'y':
      return two(date.getFullYear() % 100);
    case 'm':
      return two(date.getMonth() + 1);
    case 'd':
      return two(date.getDate());
    case 'e':
      return String(date.getDate()).padStart(2, ' ');
    case 'j':
      return String(dayOfYear()).padStart(3, '0');
    case 'H':
      return two(date.getHours());
    case 'I':
      return two(hour12);
    case 'M':
      return two(date.getMinutes());
    case 'S':
      return two(date.getSeconds());
    case 'p':
      return date.getHours() < 12 ? 'AM' : 'PM';
    case 'A':
      return day;
    case 'a':
      return day.slice(0, SHORT);
    case 'B':
      return month;
    case 'b':
    case 'h':
      return month.slice(0, SHORT);
    case 'F':
      return strftime('%Y-%m-%d', date);
    case 'T':
      return strftime('%H:%M:%S', date);
    case '%':
      return '%';
    default:
      return undefined;
  }
}

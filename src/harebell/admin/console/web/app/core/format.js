// Numbers, bytes, times and names as people read them.

const whole = new Intl.NumberFormat("en-GB");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function number(value) {
  return value === undefined || value === null ? "" : whole.format(value);
}

/** A rate in a second; nothing for 0, so that what moves stands out. */
export function rate(value) {
  if (!value) return "";
  return value < 10 ? value.toFixed(1) : whole.format(Math.round(value));
}

export function bytes(value) {
  if (value === undefined || value === null) return "";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export function byteRate(value) {
  return value ? `${bytes(value)}/s` : "";
}

/** So many seconds in the two largest units: "3 h 12 min". */
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return "";
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => seconds >= size);
  const [size, unit] = parts[first];
  const count = Math.floor(seconds / size);
  const next = parts[first + 1];
  const more = next ? Math.floor((seconds % size) / next[0]) : 0;
  return more ? `${count} ${unit} ${more} ${next[1]}` : `${count} ${unit}`;
}

/** Milliseconds since 1970 as a time of this place; with the day unless that is today. */
export function time(at) {
  if (!at) return "";
  const when = new Date(at), today = new Date().toDateString() === when.toDateString();
  return today ? when.toLocaleTimeString("en-GB") : when.toLocaleString("en-GB");
}

export function plural(count, word, many = word.endsWith("cy") ? `${word.slice(0, -1)}ies` : `${word}s`) {
  return `${number(count)} ${count === 1 ? word : many}`;
}

/** The default exchange has no name. */
export function exchangeName(name) {
  return name === "" ? "(default)" : name;
}

export const json = (value) => JSON.stringify(value);

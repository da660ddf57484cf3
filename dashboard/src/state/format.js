// Numbers, sizes and times as texts.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A number with at most four digits and the letter of its power: `1.25 M`. */
export function count(value) {
  if (!Number.isFinite(value)) {
    return "–";
  }
  for (const [size, letter] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (Math.abs(value) >= size) {
      const unit = letter === " k" ? 1e3 : size;
      return `${digits(value / unit)}${letter}`;
    }
  }
  return digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(Number.isInteger(value) || size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

/** A rate: `3.2/s`. */
export function perSecond(value) {
  return Number.isFinite(value) ? `${count(value)}/s` : "–";
}

/** A number of bytes. */
export function bytes(value) {
  if (!Number.isFinite(value)) {
    return "–";
  }
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : digits(value)} ${UNITS[unit]}`;
}

/** A time span in seconds: `2 h 5 min`. */
export function span(seconds) {
  if (!Number.isFinite(seconds)) {
    return "–";
  }
  if (seconds < 1) {
    return `${digits(seconds * 1e3)} ms`;
  }
  if (seconds < 60) {
    return `${digits(seconds)} s`;
  }
  const whole = Math.floor(seconds);
  for (const [size, unit, part, of] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / part);
      return rest ? `${Math.floor(whole / size)} ${unit} ${rest} ${of}` : `${Math.floor(whole / size)} ${unit}`;
    }
  }
  return `${whole} s`;
}

/** A time of the API, or in milliseconds since 1970, in the zone of the browser: `2026-11-25 13:42:47`. */
export function time(text) {
  const at = new Date(text ?? NaN);
  if (Number.isNaN(at.getTime())) {
    return text ? String(text) : "–";
  }
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

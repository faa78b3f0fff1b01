// Numbers and dates as people read them.

const whole = new Intl.NumberFormat("en");
const one = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const signed = new Intl.NumberFormat("en", {
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
  signDisplay: "exceptZero",
});
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const minute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const count = (number) => whole.format(number);
export const items = (number) => `${whole.format(number)} ${number === 1 ? "item" : "items"}`;
export const score = (cosine) => cosine.toFixed(3);
// The service writes null for a number that could not be measured.
export const percent = (share) => (share === null ? "–" : `${one.format(100 * share)} %`);
export const points = (gain) => (gain === null ? "–" : signed.format(100 * gain).replace("-", "−"));

export const date = (text) => dated(text, day);
export const moment = (text) => dated(text, minute);

function dated(text, format) {
  const then = new Date(text);
  return Number.isNaN(then.getTime()) ? String(text) : format.format(then);
}

export function mebibytes(bytes) {
  return `${one.format(bytes / 1048576)} MiB`;
}

export function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${one.format(seconds / 3600)} h`;
}

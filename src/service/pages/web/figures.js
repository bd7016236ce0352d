// SPDX-License-Identifier: Apache-2.0
// figures: numbers, times and sizes as a reader expects them, in the language of the browser.

const whole = new Intl.NumberFormat();
const short = new Intl.NumberFormat(undefined, {notation: "compact", maximumFractionDigits: 1});
const rates = new Intl.NumberFormat(undefined, {maximumSignificantDigits: 3});
const moments = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "short"});

const plain = new Intl.NumberFormat(undefined, {maximumSignificantDigits: 4});
const fine = new Intl.NumberFormat(undefined, {maximumFractionDigits: 4});
const tiny = new Intl.NumberFormat(undefined, {maximumSignificantDigits: 2});
const TINY = 0.001;

/**
 * A measured number, to four digits, or two where it is tiny; a whole number keeps all of its
 * digits.
 */
export const figure = number => (Number.isInteger(number) ? whole
    : Math.abs(number) >= 1                               ? plain
    : Math.abs(number) >= TINY
    ? fine
    : tiny).format(number);
export const count = number => whole.format(number);
/** A count with its word: "1 line", "2 lines". */
export const counted = (number, one, several) => `${count(number)} ${number === 1 ? one : several}`;
export const compact = number => short.format(number);
export const rate = number => rates.format(number);
export const moment = seconds => moments.format(new Date(seconds * 1000));

export function share(part, all) {
  return all > 0
    ? new Intl
        .NumberFormat(undefined, {style: "percent", maximumFractionDigits: part === all ? 0 : 1})
        .format(part / all)
    : "";
}

/** "12.5 %" of a part of 1. */
export const percent = part => share(part, 1);

export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; number >= 1024 && at < units.length - 1; at++) number /= 1024;
  return `${rates.format(number)} ${units[at]}`;
}

/** "2 d 3 h", "41 min", "12 s": the two largest units. */
export function duration(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let left = Math.max(0, Math.round(seconds));
  const first = parts.findIndex(([size]) => left >= size);
  if (first < 0) return "0 s";
  const text = [];
  for (const [size, unit] of parts.slice(first, first + 2)) {
    const number = Math.floor(left / size);
    if (number > 0) text.push(`${number} ${unit}`);
    left -= number * size;
  }
  return text.join(" ");
}

/**
 * What one run costs: "0.12 EUR of electricity, 0.5 EUR at a managed API"; empty where no price is
 * known.
 */
export function costText(costs) {
  const once = costs?.once ?? {}, range = (low, high) => low === high ? low : `${low} to ${high}`;
  const money = amount => typeof amount === "object"
    ? range(figure(amount.low), figure(amount.high))
    : figure(amount);
  return [
    ["electricity", "of electricity"], ["rented_gpu", "on a rented machine"],
    ["managed_api", "at a managed API"]
  ].filter(([name]) => once[name] !== null && once[name] !== undefined)
    .map(([name, text]) => `${money(once[name])} ${costs.currency} ${text}`)
    .join(", ");
}

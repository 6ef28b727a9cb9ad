// Numbers and times as people read them.

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** @param {number} value */
export function bytes(value) {
  if (!Number.isFinite(value)) return "-";
  const power = value < 1024 ? 0 : Math.min(Math.floor(Math.log2(value) / 10), BYTES.length - 1);
  const scaled = value / 1024 ** power;
  return `${scaled.toFixed(power === 0 || scaled >= 100 ? 0 : 1)} ${BYTES[power]}`;
}

/** @param {number} value */
export function count(value) {
  if (!Number.isFinite(value)) return "-";
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}

/** @param {number} value Seconds. */
export function seconds(value) {
  if (!Number.isFinite(value)) return "-";
  if (value < 0.001) return value === 0 ? "0" : `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Number((value * 1000).toPrecision(3))} ms`;
  if (value < 120) return `${Number(value.toPrecision(3))} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172_800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86_400)} days`;
}

/** @param {number} value 0 to 1. */
export function percent(value) {
  return Number.isFinite(value) ? `${Number((value * 100).toFixed(1))} %` : "-";
}

/**
 * Shortens a content ID to its beginning and end.
 * @param {string} cid
 */
export function short(cid) {
  return cid.length > 24 ? `${cid.slice(0, 12)}…${cid.slice(-8)}` : cid;
}

/** Control characters, and marks that change the direction of text. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/**
 * Shows characters that would hide or reorder the others, such as U+202E in "photo\u202egpj.exe", as their numbers.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(INVISIBLE, (character) => `⟨U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

// The effective configuration.

import { h } from "../dom.js";
import { request } from "./api.js";
import { bytes, count, seconds } from "./format.js";
import { empty, failure } from "./parts.js";

/** @type {import("./page.js").View} */
export function configuration(place) {
  const filter = /** @type {HTMLInputElement} */ (h("input", { type: "search", "aria-label": "Filter", placeholder: "Filter keys and values", spellcheck: "false" }));
  const amount = h("span", { class: "dim", role: "status" });
  const shown = h("div", {}, h("p", { class: "dim" }, "Loading"));
  const form = h("form", { class: "row" }, filter, amount);
  form.addEventListener("submit", (event) => event.preventDefault());
  place.append(h("p", { class: "dim" }, "The settings in effect: the file, environment variables and flags over the defaults. A restart applies changes of the file."), form, shown);
  load(filter, amount, shown).catch((error) => shown.replaceChildren(failure(error)));
}

/**
 * @param {HTMLInputElement} filter
 * @param {HTMLElement} amount
 * @param {HTMLElement} shown
 */
async function load(filter, amount, shown) {
  /** @type {Record<string, Record<string, unknown>>} */
  const sections = await (await request("/v1/config")).json();
  const show = () => {
    const wanted = filter.value.trim().toLowerCase();
    let found = 0;
    const tables = Object.entries(sections).flatMap(([section, keys]) => {
      const isWanted = (/** @type {[string, unknown]} */ [key, value]) => `${section}.${key} ${JSON.stringify(value)}`.toLowerCase().includes(wanted);
      const chosen = Object.entries(keys).filter(isWanted);
      if (chosen.length === 0) return [];
      found += chosen.length;
      const rows = chosen.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, key)), h("td", {}, h("code", {}, JSON.stringify(value)), " ", h("span", { class: "dim" }, meaning(key, value)))));
      return [h("h3", {}, section), h("div", { class: "scroll" }, h("table", { class: "settings", "aria-label": section }, h("tbody", {}, ...rows)))];
    });
    amount.textContent = wanted === "" ? "" : `${count(found)} found`;
    shown.replaceChildren(...(tables.length > 0 ? tables : [empty("No setting has this text in its key or value.")]));
  };
  filter.addEventListener("input", show);
  show();
}

/**
 * A large number of bytes or seconds as people read it.
 * @param {string} key
 * @param {unknown} value
 */
function meaning(key, value) {
  if (typeof value !== "number") return "";
  if (key.endsWith("bytes") && value >= 1024) return bytes(value);
  return key.endsWith("seconds") && value >= 120 ? seconds(value) : "";
}

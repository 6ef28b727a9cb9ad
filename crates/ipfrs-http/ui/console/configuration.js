// The effective configuration.

import { h } from "../dom.js";
import { request } from "./api.js";
import { attempt } from "./parts.js";

/** @type {import("./page.js").View} */
export function configuration(place) {
  const filter = /** @type {HTMLInputElement} */ (h("input", { type: "search", "aria-label": "Filter", placeholder: "Filter keys" }));
  const shown = h("div");
  place.append(h("p", { class: "dim" }, "All settings, with their defaults. The file is config.toml in the repo; a restart applies its changes."), h("form", { class: "row" }, filter), shown);
  attempt(async () => {
    /** @type {Record<string, Record<string, unknown>>} */
    const sections = await (await request("/v1/config")).json();
    const show = () => {
      const wanted = filter.value.trim().toLowerCase();
      shown.replaceChildren(
        ...Object.entries(sections).flatMap(([section, keys]) => {
          const chosen = Object.entries(keys).filter(([key]) => `${section}.${key}`.includes(wanted));
          if (chosen.length === 0) return [];
          const rows = chosen.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, key)), h("td", {}, h("code", {}, JSON.stringify(value)))));
          return [h("h3", {}, section), h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, ...rows)))];
        }),
      );
    };
    filter.addEventListener("input", show);
    show();
  });
}

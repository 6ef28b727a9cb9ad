// Pins: what garbage collection keeps.

import { h } from "../dom.js";
import { graphql, rpc } from "./api.js";
import { attempt, button, confirmed, contentLink, notify, pages } from "./parts.js";

const PINS = "query ($after: String) { pins(first: 100, after: $after) { nodes { cid type name } pageInfo { hasNextPage endCursor } } }";

/** @type {import("./page.js").View} */
export function pins(place) {
  const path = /** @type {HTMLInputElement} */ (h("input", { type: "text", "aria-label": "Content path to pin", placeholder: "CID or /ipns/name", required: true, spellcheck: "false" }));
  const name = /** @type {HTMLInputElement} */ (h("input", { type: "text", "aria-label": "Name of the pin", placeholder: "Name (optional)" }));
  const form = h("form", { class: "row" }, path, name, h("button", { class: "main" }, "Pin"));
  const shown = h("div");
  const refresh = () => shown.replaceChildren(list(refresh));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(async () => {
      await rpc("pin/add", [path.value.trim()], name.value === "" ? {} : { name: name.value });
      path.value = "";
      name.value = "";
      notify("Pinned");
      refresh();
    });
  });
  place.append(form, shown);
  refresh();
}

/** @param {() => void} refresh */
function list(refresh) {
  return pages("Pins", ["Content ID", "Name", "Kind", ""], "Nothing is pinned. Garbage collection removes what no pin covers.", async (after) => {
    const { pins } = await graphql(PINS, { after });
    const rows = pins.nodes.map((/** @type {any} */ { cid, type, name }) => {
      const unpin = button("Unpin", async () => {
        if (!(await confirmed(`Unpin ${name || cid}? The next garbage collection then removes it.`, "Unpin"))) return;
        await rpc("pin/rm", [cid], { recursive: String(type === "RECURSIVE") });
        refresh();
      }, `Unpin ${name || cid}`);
      return h("tr", {}, h("td", {}, contentLink(cid)), h("td", {}, name), h("td", {}, type.toLowerCase()), h("td", { class: "act" }, unpin));
    });
    return { rows, next: pins.pageInfo.hasNextPage ? pins.pageInfo.endCursor : undefined };
  }).element;
}

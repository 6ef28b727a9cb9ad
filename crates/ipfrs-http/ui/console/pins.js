// Pins: what garbage collection keeps.

import { h } from "../dom.js";
import { graphql, rpc } from "./api.js";
import { contentPath } from "./content.js";
import { visible } from "./format.js";
import { button, confirmed, contentLink, notify, pages, rowForm } from "./parts.js";

const PINS = "query ($after: String) { pins(first: 100, after: $after) { nodes { cid type name } pageInfo { hasNextPage endCursor } } }";

/** @type {import("./page.js").View} */
export function pins(place) {
  const path = /** @type {HTMLInputElement} */ (h("input", { type: "text", "aria-label": "Content path to pin", placeholder: "CID, /ipfs/CID/path or /ipns/name", required: true, spellcheck: "false" }));
  const name = /** @type {HTMLInputElement} */ (h("input", { type: "text", "aria-label": "Name of the pin", placeholder: "Name (optional)" }));
  const form = rowForm([path, name], "Pin", async () => {
    const wanted = contentPath(path.value);
    await rpc("pin/add", [wanted.startsWith("ipns/") ? `/${wanted}` : wanted], name.value === "" ? {} : { name: name.value });
    path.value = "";
    name.value = "";
    notify("Pinned");
    refresh();
  });
  const shown = h("div");
  const refresh = () => shown.replaceChildren(list(refresh));
  place.append(form, shown);
  refresh();
}

/** @param {() => void} refresh */
function list(refresh) {
  return pages("Pins", ["Content ID", "Name", "~Kind", ""], "Nothing is pinned. Garbage collection removes what no pin covers.", async (after) => {
    const { pins } = await graphql(PINS, { after });
    const rows = pins.nodes.map((/** @type {any} */ { cid, type, name }) => {
      const label = visible(name) || cid;
      const unpin = button("Unpin", async () => {
        if (!(await confirmed(`Unpin ${label}? The next garbage collection then removes it.`, "Unpin"))) return;
        await rpc("pin/rm", [cid], { recursive: String(type === "RECURSIVE") });
        refresh();
      }, `Unpin ${label}`);
      unpin.classList.add("small");
      return h("tr", {}, h("td", {}, contentLink(cid)), h("td", { class: "name" }, h("bdi", {}, visible(name))), h("td", { class: "wide" }, type.toLowerCase()), h("td", { class: "act" }, unpin));
    });
    return { rows, next: pins.pageInfo.hasNextPage ? pins.pageInfo.endCursor : undefined };
  }).element;
}

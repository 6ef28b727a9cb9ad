// IPNS names: the keys of this node and what they point to.

import { h } from "../dom.js";
import { graphql, rpc } from "./api.js";
import { attempt, button, confirmed, contentLink, notify, pages } from "./parts.js";

const NAMES = "query ($after: String) { names(first: 100, after: $after) { nodes { name id value sequence } pageInfo { hasNextPage endCursor } } }";

/** @type {import("./page.js").View} */
export function names(place) {
  const shown = h("div");
  const refresh = () => shown.replaceChildren(list(refresh));
  const name = /** @type {HTMLInputElement} */ (h("input", { type: "text", "aria-label": "Name of the new key", placeholder: "Name of a new key", required: true, spellcheck: "false" }));
  const form = h("form", { class: "row" }, name, h("button", { class: "main" }, "Create key"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(async () => {
      await rpc("key/gen", [name.value.trim()]);
      name.value = "";
      refresh();
    });
  });
  place.append(form, shown);
  refresh();
}

/** @param {() => void} refresh */
function list(refresh) {
  return pages("Names", ["Key", "Name", "Points to", "#Sequence", ""], "There are no keys.", async (after) => {
    const { names } = await graphql(NAMES, { after });
    const rows = names.nodes.map((/** @type {any} */ node) => h("tr", {}, ...cells(node, refresh)));
    return { rows, next: names.pageInfo.hasNextPage ? names.pageInfo.endCursor : undefined };
  }).element;
}

/**
 * @param {{ name: string, id: string, value: string | null, sequence: number | null }} node
 * @param {() => void} refresh
 */
function cells({ name, id, value, sequence }, refresh) {
  const target = /** @type {HTMLInputElement} */ (h("input", { type: "text", "aria-label": `Content path for ${name}`, placeholder: "/ipfs/CID", spellcheck: "false" }));
  const publish = button("Publish", async () => {
    await rpc("name/publish", [target.value.trim()], { key: name, "allow-offline": "true" });
    notify(`${name} points to it now`);
    refresh();
  }, `Publish under ${name}`);
  const remove = button("Remove", async () => {
    if (!(await confirmed(`Remove the key ${name}? Nobody can then change what its name points to.`, "Remove"))) return;
    await rpc("key/rm", [name]);
    refresh();
  }, `Remove the key ${name}`);
  const points = value?.startsWith("/ipfs/") ? contentLink(value.slice("/ipfs/".length)) : h("span", { class: value ? "" : "dim" }, value ?? "nothing yet");
  return [
    h("th", { scope: "row" }, name),
    h("td", {}, contentLink(`ipns/${id}`)),
    h("td", {}, points),
    h("td", { class: "number" }, sequence === null ? "" : String(sequence)),
    h("td", { class: "act" }, h("span", { class: "row" }, target, publish, ...(name === "self" ? [] : [remove]))),
  ];
}

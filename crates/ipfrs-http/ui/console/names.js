// IPNS names and the keys that sign them.

import { h } from "../dom.js";
import { graphql, rpc } from "./api.js";
import { contentPath } from "./content.js";
import { visible } from "./format.js";
import { attempt, button, confirmed, contentLink, copyButton, empty, facts, failure, notify, rowForm } from "./parts.js";

const NAMES = "query ($after: String) { names(first: 100, after: $after) { nodes { name id value sequence } pageInfo { hasNextPage endCursor } } }";

/** @typedef {{ name: string, id: string, value: string | null, sequence: number | null }} Name */

/** @type {import("./page.js").View} */
export function names(place) {
  const shown = h("div");
  const refresh = () => attempt(() => list(shown, refresh));
  const name = /** @type {HTMLInputElement} */ (h("input", { type: "text", "aria-label": "Name of the new key", placeholder: "Name of a new key", required: true, spellcheck: "false" }));
  const form = rowForm([name], "Create key", async () => {
    await rpc("key/gen", [name.value.trim()]);
    name.value = "";
    await refresh();
  });
  shown.append(h("p", { class: "dim" }, "Loading"));
  place.append(h("p", { class: "dim" }, "A key signs a name, /ipns/k51…, whose target can change. Readers follow the name to what was last published under it."), form, shown);
  list(shown, refresh).catch((error) => shown.replaceChildren(failure(error)));
}

/**
 * @param {HTMLElement} shown
 * @param {() => Promise<unknown>} refresh
 */
async function list(shown, refresh) {
  /** @type {HTMLElement[]} */
  const cards = [];
  for (let after; ; ) {
    const { names } = /** @type {{ names: any }} */ (await graphql(NAMES, { after }));
    cards.push(...names.nodes.map((/** @type {Name} */ node) => h("li", { class: "tile" }, ...card(node, refresh))));
    if (!names.pageInfo.hasNextPage) break;
    after = names.pageInfo.endCursor;
  }
  shown.replaceChildren(cards.length > 0 ? h("ul", { class: "cards" }, ...cards) : empty("There are no keys."));
}

/**
 * @param {Name} node
 * @param {() => Promise<unknown>} refresh
 * @returns {HTMLElement[]}
 */
function card({ name, id, value, sequence }, refresh) {
  const shown = visible(name);
  const target = /** @type {HTMLInputElement} */ (h("input", { type: "text", "aria-label": `Content path for ${shown}`, placeholder: "/ipfs/CID or /ipns/name", required: true, spellcheck: "false" }));
  const publish = rowForm([target], "Publish", async () => {
    const wanted = contentPath(target.value);
    await rpc("name/publish", [wanted.startsWith("ipns/") ? `/${wanted}` : `/ipfs/${wanted}`], { key: name, "allow-offline": "true" });
    notify(`${shown} points to it now`);
    await refresh();
  }, `Publish under ${shown}`);
  const remove = button("Remove", async () => {
    if (!(await confirmed(`Remove the key ${shown}? What its name points to can then never be changed again.`, "Remove"))) return;
    await rpc("key/rm", [name]);
    await refresh();
  }, `Remove the key ${shown}`);
  remove.classList.add("small");
  const path = value === null ? "" : contentPath(value);
  const points = value === null ? h("span", { class: "dim" }, "nothing yet") : contentLink(path);
  return [
    h("div", { class: "heading" }, h("h3", {}, h("bdi", {}, shown)), name === "self" ? h("span", { class: "badge" }, "identity of this node") : remove),
    facts([["Name", h("span", { class: "copied" }, contentLink(`ipns/${id}`), copyButton(`/ipns/${id}`, `Copy the name of ${shown}`))], ["Points to", points], ["Sequence number", sequence === null ? "" : String(sequence)]]),
    publish,
  ];
}

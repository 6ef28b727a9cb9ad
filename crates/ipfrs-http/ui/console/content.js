// The explorer: what is at a content path, its blocks and its tensors.

import { h } from "../dom.js";
import { graphql, message, rpc } from "./api.js";
import { bytes, count } from "./format.js";
import { button, contentLink, notify, pages, table } from "./parts.js";
import { preview } from "./preview.js";
import { tensors } from "./tensors.js";

const FILE = `query ($path: String!) {
  file(path: $path) {
    cid kind size dagSize mode mtime target
    block { cid size codec links(first: 200) { name cid size } }
  }
}`;
const NODE = "query ($path: String!) { dag(path: $path) { cid codec value } }";
const ENTRIES = `query ($path: String!, $after: String) {
  directory(path: $path, first: 200, after: $after) {
    totalCount
    nodes { name cid kind size target }
    pageInfo { hasNextPage endCursor }
  }
}`;
const BLOCKS = "query ($after: String) { blocks(first: 50, after: $after) { nodes { cid size codec } pageInfo { hasNextPage endCursor } } }";

/** @type {import("./page.js").View} */
export function content(place, rest) {
  const path = rest.filter((part) => part !== "").join("/");
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "text", name: "path", "aria-label": "Content path", placeholder: "CID, /ipfs/CID/path, or /ipns/name", value: path, spellcheck: "false", autocapitalize: "none" }));
  const form = h("form", { class: "row" }, input, h("button", { class: "main" }, "Open"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = input.value.trim().replace(/^ipfs:\/\//, "").replace(/^ipns:\/\//, "ipns/").replace(/^\/?ipfs\//, "").replace(/^\/+/, "");
    if (wanted !== "") location.hash = `#/content/${wanted.split("/").map(encodeURIComponent).join("/")}`;
  });
  const shown = h("div");
  place.append(form, shown);
  if (path === "") {
    shown.append(h("h3", {}, "Blocks in this store"), blocks());
    return;
  }
  open(path, shown).catch((error) => shown.replaceChildren(h("p", { class: "bad" }, message(error))));
}

/** The path in the form that the daemon takes. @param {string} path */
const full = (path) => (path.startsWith("ipns/") ? `/${path}` : `/ipfs/${path}`);

function blocks() {
  return pages("Blocks", ["Content ID", "Codec", "#Size"], "The store is empty.", async (after) => {
    const { blocks } = await graphql(BLOCKS, { after });
    const rows = blocks.nodes.map((/** @type {any} */ { cid, size, codec }) => h("tr", {}, h("td", {}, contentLink(cid)), h("td", {}, codec), h("td", { class: "number" }, bytes(size))));
    return { rows, next: blocks.pageInfo.hasNextPage ? blocks.pageInfo.endCursor : undefined };
  }).element;
}

/**
 * @param {string} path
 * @param {HTMLElement} shown
 */
async function open(path, shown) {
  const steps = path.split("/");
  const isName = steps[0] === "ipns";
  const roots = isName ? 2 : 1;
  const crumbs = steps.slice(roots - 1).map((_, index) => {
    const to = steps.slice(0, roots + index).join("/");
    return h("li", {}, index + roots === steps.length ? h("span", { "aria-current": "location", class: index === 0 ? "cid" : "" }, steps[steps.length - 1]) : contentLink(to, steps[roots - 1 + index]));
  });
  const trail = h("nav", { "aria-label": "Path" }, h("ol", { class: "crumbs" }, ...crumbs));
  shown.replaceChildren(trail, h("p", { class: "dim" }, "Loading"));
  let file;
  let reason;
  try {
    ({ file } = await graphql(FILE, { path: full(path) }));
  } catch (error) {
    reason = error;
  }
  if (file && file.kind !== "UNKNOWN") {
    shown.replaceChildren(trail, ...describe(path, file));
    return;
  }
  try {
    const { dag } = await graphql(NODE, { path: full(path) });
    shown.replaceChildren(trail, facts([["Content ID", cid(dag.cid)], ["Codec", dag.codec]]), actions(path, dag.cid, false), h("h3", {}, "Value"), h("div", { class: "preview", tabindex: "0" }, h("pre", {}, ...linked(dag.value))));
  } catch (error) {
    throw reason ?? error;
  }
}

/**
 * @param {string} path
 * @param {any} file
 * @returns {HTMLElement[]}
 */
function describe(path, file) {
  const parts = [
    facts([
      ["Kind", file.kind.toLowerCase()],
      ["Content ID", cid(file.cid)],
      ["Size", file.kind === "FILE" ? `${bytes(file.size)} (${count(file.size)} bytes)` : ""],
      ["With all blocks", file.dagSize === null ? "" : bytes(file.dagSize)],
      ["Target", file.target ?? ""],
      ["Mode", file.mode === null ? "" : file.mode.toString(8)],
      ["Modified", file.mtime ? new Date(file.mtime).toLocaleString() : ""],
      ["Codec of the root", file.block.codec],
    ]),
    actions(path, file.cid, file.kind === "FILE"),
  ];
  if (file.kind === "DIRECTORY") parts.push(h("h3", {}, "Entries"), entries(path));
  if (file.kind === "FILE") {
    const place = h("div");
    parts.push(h("h3", {}, "Preview"), place);
    preview(path, file.size, place).then((kind) => {
      if (kind === "tensors") place.append(tensors(path));
    });
  }
  const links = file.block.links ?? [];
  if (links.length > 0) {
    const rows = links.map((/** @type {any} */ link) => h("tr", {}, h("td", {}, link.name || h("span", { class: "dim" }, "(none)")), h("td", {}, contentLink(link.cid)), h("td", { class: "number" }, bytes(link.size))));
    parts.push(h("details", {}, h("summary", {}, `Links of the root block (${links.length === 200 ? "first 200" : links.length})`), table("Links", ["Name", "Content ID", "#Size below"], h("tbody", {}, ...rows))));
  }
  return parts;
}

/** @param {[string, string | HTMLElement][]} list Facts; those with an empty text are left out. */
function facts(list) {
  return h("dl", { class: "facts" }, ...list.filter(([, value]) => value !== "").flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** @param {string} text */
function cid(text) {
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(text);
    notify("Copied");
  }, "Copy the content ID");
  return h("span", {}, h("code", {}, text), " ", copy);
}

/**
 * @param {string} path
 * @param {string} id
 * @param {boolean} isFile
 */
function actions(path, id, isFile) {
  const address = path.split("/").map(encodeURIComponent).join("/");
  const prefix = path.startsWith("ipns/") ? "/" : "/ipfs/";
  return h(
    "p",
    { class: "row" },
    h("a", { href: `${prefix}${address}`, target: "_blank", rel: "noreferrer" }, "Open in the gateway"),
    isFile ? h("a", { href: `/v1/stream/download/${address}`, download: path.split("/").at(-1) ?? "" }, "Download") : "",
    button("Pin", async () => {
      await rpc("pin/add", [id]);
      notify("Pinned");
    }),
  );
}

/** @param {string} path */
function entries(path) {
  return pages("Entries", ["Name", "Kind", "#Size", "Content ID"], "The directory is empty.", async (after) => {
    const { directory } = await graphql(ENTRIES, { path: full(path), after });
    const rows = directory.nodes.map((/** @type {any} */ { name, cid, kind, size, target }) =>
      h("tr", {}, h("td", {}, contentLink(`${path}/${name}`, name)), h("td", {}, kind.toLowerCase(), target ? ` → ${target}` : ""), h("td", { class: "number" }, kind === "DIRECTORY" ? "" : bytes(size)), h("td", {}, contentLink(cid))),
    );
    return { rows, next: directory.pageInfo.hasNextPage ? directory.pageInfo.endCursor : undefined };
  }).element;
}

/**
 * Formats a dag-json value with links to its CIDs.
 * @param {unknown} value
 * @returns {(string | HTMLElement)[]}
 */
function linked(value) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  return text.split(/("\/": "[a-zA-Z0-9]+")/).map((part) => {
    const match = /^"\/": "([a-zA-Z0-9]+)"$/.exec(part);
    return match ? h("span", {}, '"/": ', contentLink(match[1], `"${match[1]}"`)) : part;
  });
}

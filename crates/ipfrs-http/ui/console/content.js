// The explorer: what is at a content path, its blocks and its tensors.

import { h } from "../dom.js";
import { graphql, message, request, rpc } from "./api.js";
import { bytes, count, visible } from "./format.js";
import { button, contentLink, copyButton, facts, failure, notify, pages, table } from "./parts.js";
import { hexadecimal, preview } from "./preview.js";
import { tensors } from "./tensors.js";

/** Maximum number of links of a block on the page. */
const MOST_LINKS = 1000;
const FILE = "query ($path: String!) { file(path: $path) { cid kind size dagSize mode mtime target block { cid size codec } } }";
const NODE = "query ($path: String!) { dag(path: $path) { cid codec value } }";
const LINKS = `query ($cid: Cid!) { block(cid: $cid) { links(first: ${MOST_LINKS}) { cid size } } }`;
const ONE_BLOCK = "query ($cid: Cid!) { block(cid: $cid) { cid size codec } }";
const ENTRIES = `query ($path: String!, $after: String) {
  directory(path: $path, first: 200, after: $after) {
    totalCount
    nodes { name cid kind size target }
    pageInfo { hasNextPage endCursor }
  }
}`;
const BLOCKS = "query ($after: String) { blocks(first: 50, after: $after) { nodes { cid size codec } pageInfo { hasNextPage endCursor } } stats { blocks } }";

/** @type {import("./page.js").View} */
export function content(place, rest) {
  const path = rest.filter((part) => part !== "").join("/");
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "text", name: "path", "aria-label": "Content path", placeholder: "CID, /ipfs/CID/path, /ipns/name, or an address of a gateway", value: path, spellcheck: "false", autocapitalize: "none" }));
  const form = h("form", { class: "row" }, input, h("button", { class: "main" }, "Open"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = contentPath(input.value);
    if (wanted !== "") location.hash = `#/content/${wanted.split("/").map(encodeURIComponent).join("/")}`;
  });
  const shown = h("div");
  place.append(form, shown);
  if (path === "") {
    shown.append(h("h3", {}, "Blocks in this store"), blocks());
    return;
  }
  open(path, shown).catch((error) => shown.replaceChildren(failure(error)));
}

/**
 * Returns the path `{cid}[/path]` or `ipns/{name}[/path]` from a path, a URI or an address of a gateway.
 * @param {string} text
 */
export function contentPath(text) {
  const wanted = text.trim();
  const address = /^https?:\/\//.test(wanted) && URL.canParse(wanted) ? new URL(wanted) : undefined;
  const uri = /^(ipfs|ipns):\/\/([^?#]*)/.exec(wanted);
  if (uri) return `${uri[1] === "ipns" ? "ipns/" : ""}${decoded(uri[2])}`.replace(/\/+$/, "");
  if (!address) return wanted.replace(/^\/?ipfs\//, "").replace(/^\/+/, "");
  // Websites have such names, too: docs.ipfs.tech.
  const subdomain = /^([a-z0-9]{20,}(?=\.ipfs\.)|[^.]+(?=\.ipns\.))\.(ipfs|ipns)\./.exec(address.hostname);
  const rest = decoded(address.pathname);
  return `${subdomain ? `/${subdomain[2]}/${subdomain[1]}` : ""}${rest}`.replace(/^\/ipfs\//, "").replace(/^\/+|\/+$/g, "");
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    // The name is not UTF-8. It is not found.
    return text;
  }
}

/** The path in the form that the daemon takes. @param {string} path */
const full = (path) => (path.startsWith("ipns/") ? `/${path}` : `/ipfs/${path}`);

function blocks() {
  return pages("Blocks", ["Content ID", "Codec", "#Size"], "The store is empty.", async (after) => {
    const { blocks, stats } = await graphql(BLOCKS, { after });
    const rows = blocks.nodes.map((/** @type {any} */ { cid, size, codec }) => h("tr", {}, h("td", {}, contentLink(cid)), h("td", {}, codec), h("td", { class: "number" }, bytes(size))));
    return { rows, next: blocks.pageInfo.hasNextPage ? blocks.pageInfo.endCursor : undefined, total: stats.blocks };
  }).element;
}

/**
 * @param {string} path
 * @param {HTMLElement} shown
 */
async function open(path, shown) {
  const steps = path.split("/");
  const roots = steps[0] === "ipns" ? 2 : 1;
  const crumbs = steps.slice(roots - 1).map((step, index) => {
    const isLast = index + roots === steps.length;
    const place = isLast ? h("span", { "aria-current": "location" }, h("bdi", {}, visible(step))) : contentLink(steps.slice(0, roots + index).join("/"), step);
    if (index === 0) place.classList.add("cid");
    return h("li", {}, place);
  });
  const trail = h("nav", { "aria-label": "Path" }, h("ol", { class: "crumbs" }, ...crumbs));
  shown.replaceChildren(trail, h("p", { class: "dim" }, "Loading"));
  let reason;
  try {
    const { file } = await graphql(FILE, { path: full(path) });
    if (file && file.kind !== "UNKNOWN") return shown.replaceChildren(trail, ...describe(path, file));
  } catch (error) {
    reason = error;
  }
  try {
    const { dag } = await graphql(NODE, { path: full(path) });
    // Values within a block have no links of their own.
    const { block } = await graphql(ONE_BLOCK, { cid: dag.cid });
    shown.replaceChildren(
      trail,
      blockFacts(block),
      actions(path, dag.cid, false),
      h("h3", {}, "Value"),
      h("div", { class: "preview", tabindex: "0", role: "region", "aria-label": "Value" }, h("pre", {}, ...linked(dag.value))),
      links(block),
    );
  } catch (error) {
    const { block } = steps.length > 1 ? { block: null } : await graphql(ONE_BLOCK, { cid: path }).catch(() => ({ block: null }));
    if (!block) throw reason ?? error;
    const query = new URLSearchParams({ arg: path });
    const data = new Uint8Array(await (await request(`/api/v0/block/get?${query}`, { method: "POST" })).arrayBuffer());
    shown.replaceChildren(trail, blockFacts(block), h("p", { class: "bad" }, `The block cannot be decoded: ${message(error)}`), h("h3", {}, "Bytes"), hexadecimal(data, data.length));
  }
}

/** @param {any} block */
function blockFacts({ cid, codec, size }) {
  return facts([["Content ID", id(cid)], ["Codec", codec], ["Size", size === null ? "" : bytes(size)]]);
}

/**
 * @param {string} path
 * @param {any} file
 * @returns {(HTMLElement | string)[]}
 */
function describe(path, file) {
  /** @type {(HTMLElement | string)[]} */
  const parts = [
    facts([
      ["Kind", file.kind.toLowerCase()],
      ["Content ID", id(file.cid)],
      ["Size", file.kind === "FILE" ? `${bytes(file.size)} (${count(file.size)} bytes)` : ""],
      ["With all blocks", file.dagSize === null ? "" : bytes(file.dagSize)],
      ["Target", file.target === null ? "" : visible(file.target)],
      ["Mode", file.mode === null ? "" : file.mode.toString(8).padStart(4, "0")],
      ["Modified", file.mtime ? new Date(file.mtime).toLocaleString() : ""],
      ["Root block", `${file.block.codec}, ${bytes(file.block.size)}`],
    ]),
    actions(path, file.cid, file.kind === "FILE"),
  ];
  if (file.kind === "DIRECTORY") parts.push(h("h3", {}, "Entries"), entries(path));
  if (file.kind === "FILE") {
    const place = h("div");
    parts.push(h("h3", {}, "Preview"), place);
    // Its own content ID leads to the file under any name.
    preview(file.cid, path.split("/").at(-1) ?? "", file.size, place).then((kind) => {
      if (kind === "tensors") place.append(tensors(file.cid));
    });
  }
  return [...parts, links(file.block)];
}

/**
 * The links of a block, which are loaded when they are shown.
 * @param {{ cid: string, codec: string }} block
 */
function links({ cid, codec }) {
  if (codec === "raw") return "";
  const place = h("div");
  const details = /** @type {HTMLDetailsElement} */ (h("details", {}, h("summary", {}, "Links of the block"), place));
  details.addEventListener("toggle", async () => {
    if (!details.open) return;
    try {
      place.replaceChildren(...linkTable(await linksOf(cid)));
    } catch (error) {
      place.replaceChildren(failure(error));
    }
  });
  return details;
}

/**
 * Returns the links of a block. Those of dag-pb have names, also inside sharded directories.
 * @param {string} cid
 * @returns {Promise<{ name: string, cid: string, size: number }[]>}
 */
async function linksOf(cid) {
  const { dag } = await graphql(NODE, { path: `/ipfs/${cid}` });
  if (dag.codec !== "dag-pb") return (await graphql(LINKS, { cid })).block.links.map((/** @type {any} */ link) => ({ name: "", ...link }));
  return dag.value.Links.map((/** @type {any} */ link) => ({ name: link.Name ?? "", cid: link.Hash["/"], size: link.Tsize ?? 0 }));
}

/** @param {{ name: string, cid: string, size: number }[]} links */
function linkTable(links) {
  if (links.length === 0) return [h("p", { class: "dim" }, "The block has no links.")];
  const rows = links.slice(0, MOST_LINKS).map(({ name, cid, size }) => {
    const shown = name === "" ? h("span", { class: "dim" }, "(none)") : h("bdi", {}, visible(name));
    return h("tr", {}, h("td", { class: "name" }, shown), h("td", {}, contentLink(cid)), h("td", { class: "number" }, size === 0 ? "" : bytes(size)));
  });
  const amount = links.length > rows.length ? `The first ${count(rows.length)} of ${count(links.length)} links` : `${count(links.length)} ${links.length === 1 ? "link" : "links"}`;
  return [h("p", { class: "dim" }, amount), table("Links", ["Name", "Content ID", "#Size below"], h("tbody", {}, ...rows))];
}

/** @param {string} text */
const id = (text) => h("span", { class: "copied" }, h("code", {}, text), copyButton(text, "Copy the content ID"));

/**
 * @param {string} path
 * @param {string} cid
 * @param {boolean} isFile
 */
function actions(path, cid, isFile) {
  const address = path.split("/").map(encodeURIComponent).join("/");
  const prefix = path.startsWith("ipns/") ? "/" : "/ipfs/";
  const name = path.split("/").at(-1) ?? "";
  return h(
    "p",
    { class: "row" },
    h("a", { class: "button", href: `${prefix}${address}`, target: "_blank", rel: "noreferrer" }, "Open in the gateway"),
    isFile ? h("a", { class: "button", href: `/v1/stream/download/${cid}?filename=${encodeURIComponent(name)}`, download: name }, "Download") : "",
    button("Pin", async () => {
      await rpc("pin/add", [cid]);
      notify("Pinned");
    }),
  );
}

/** @param {string} path */
function entries(path) {
  return pages("Entries", ["Name", "~Kind", "#Size", "~Content ID"], "The directory is empty.", async (after) => {
    const { directory } = await graphql(ENTRIES, { path: full(path), after });
    const rows = directory.nodes.map((/** @type {any} */ { name, cid, kind, size, target }) =>
      h(
        "tr",
        {},
        h("td", { class: "name" }, entryLink(path, name, cid), kind === "DIRECTORY" ? "/" : target ? ` → ${visible(target)}` : ""),
        h("td", { class: "wide" }, kind.toLowerCase()),
        h("td", { class: "number" }, kind === "DIRECTORY" ? "" : bytes(size)),
        h("td", { class: "wide" }, contentLink(cid)),
      ),
    );
    return { rows, next: directory.pageInfo.hasNextPage ? directory.pageInfo.endCursor : undefined, total: directory.totalCount ?? undefined };
  }).element;
}

/**
 * A link to an entry of a directory. Names that are not UTF-8 or have a slash do not fit into a path, and browsers remove
 * dots: these lead to their content instead.
 * @param {string} path
 * @param {string} name
 * @param {string} cid
 */
function entryLink(path, name, cid) {
  const fits = !/[/\ufffd]/.test(name) && name !== "." && name !== "..";
  return contentLink(!fits ? cid : `${path}/${name}`, name);
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

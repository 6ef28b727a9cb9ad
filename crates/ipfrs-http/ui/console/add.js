// Uploads of files and folders that are dropped or chosen.

import { h } from "../dom.js";
import { message, rpc } from "./api.js";
import { buildDirectory } from "./directory.js";
import { bytes } from "./format.js";
import { button, contentLink, notify } from "./parts.js";
import { upload } from "./upload.js";

/** Number of files of a folder that are uploaded at the same time. */
const AT_A_TIME = 3;

/** @typedef {{ path: string, file: File }} Found A file with its path below what was dropped. */

/** Rows of all uploads of this page, which continue while other views are shown. */
const rows = h("div", { "aria-live": "polite" });
let running = 0;
window.addEventListener("beforeunload", (event) => {
  if (running > 0) event.preventDefault();
});

/** @type {import("./page.js").View} */
export function add(place) {
  const files = /** @type {HTMLInputElement} */ (h("input", { type: "file", multiple: true, hidden: true, id: "files" }));
  const folder = /** @type {HTMLInputElement} */ (h("input", { type: "file", hidden: true, id: "folder", webkitdirectory: true }));
  for (const input of [files, folder]) {
    input.addEventListener("change", () => {
      start([...(input.files ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
      input.value = "";
    });
  }
  const drop = h(
    "div",
    { class: "drop" },
    h("p", {}, "Drop files or folders here"),
    h("button", { type: "button", class: "main", click: () => files.click() }, "Choose files"),
    " ",
    h("button", { type: "button", click: () => folder.click() }, "Choose a folder"),
    files,
    folder,
  );
  for (const kind of ["dragenter", "dragover"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", async (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    start(await dropped(/** @type {DragEvent} */ (event).dataTransfer));
  });
  place.append(drop, rows, h("p", { class: "dim" }, "What is added here is pinned. An interrupted upload continues when the connection returns, or when the same file is chosen again within a week."));
}

/**
 * Lists what was dropped, with the content of folders.
 * @param {DataTransfer | null} transfer
 * @returns {Promise<Found[]>}
 */
async function dropped(transfer) {
  // Entries have to be taken before anything is awaited.
  const entries = [...(transfer?.items ?? [])].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  const found = await Promise.all(entries.map((entry) => below(entry, "")));
  return found.flat();
}

/**
 * @param {FileSystemEntry} entry
 * @param {string} parent
 * @returns {Promise<Found[]>}
 */
async function below(entry, parent) {
  const path = `${parent}${entry.name}`;
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => /** @type {FileSystemFileEntry} */ (entry).file(resolve, reject));
    return [{ path, file }];
  }
  const reader = /** @type {FileSystemDirectoryEntry} */ (entry).createReader();
  const found = [];
  for (;;) {
    /** @type {FileSystemEntry[]} */
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return found;
    for (const child of some) found.push(...(await below(child, `${path}/`)));
  }
}

/** Uploads single files, and each folder as a whole. @param {Found[]} found */
function start(found) {
  if (found.length === 0) return notify("There are no files in it.");
  /** @type {Map<string, Found[]>} */
  const folders = new Map();
  for (const item of found) {
    const slash = item.path.indexOf("/");
    if (slash < 0) {
      run(item.path, [item], async (put) => put(item, true));
      continue;
    }
    const name = item.path.slice(0, slash);
    folders.set(name, [...(folders.get(name) ?? []), item]);
  }
  for (const [name, items] of folders) {
    run(`${name}/`, items, async (put) => {
      const cids = new Map();
      const waiting = [...items];
      const work = async () => {
        for (let item = waiting.shift(); item; item = waiting.shift()) cids.set(item.path.slice(name.length + 1), await put(item, false));
      };
      await Promise.all(Array.from({ length: AT_A_TIME }, work));
      // The pin covers all files. It fails if a garbage collection was faster.
      const { cid } = await buildDirectory(cids);
      await rpc("pin/add", [cid], { name });
      return cid;
    });
  }
}

/**
 * Runs an upload and shows its progress.
 * @param {string} title
 * @param {Found[]} items
 * @param {(put: (item: Found, pin: boolean) => Promise<string>) => Promise<string>} work
 */
async function run(title, items, work) {
  const total = items.reduce((sum, { file }) => sum + file.size, 0);
  const abort = new AbortController();
  const sent = new Map();
  const bar = /** @type {HTMLProgressElement} */ (h("progress", { max: String(Math.max(total, 1)), value: "0", "aria-label": `Upload of ${title}` }));
  const state = h("span", { class: "dim" }, "Waiting");
  const cancel = button("Cancel", async () => abort.abort(), `Cancel the upload of ${title}`);
  const row = h("div", { class: "tile" }, h("div", { class: "row" }, h("strong", {}, title), state, cancel), bar);
  rows.prepend(row);
  const began = performance.now();
  const put = (/** @type {Found} */ { path, file }, /** @type {boolean} */ pin) =>
    upload(file, {
      path,
      pin,
      signal: abort.signal,
      progress: (amount) => {
        sent.set(path, amount);
        const all = [...sent.values()].reduce((sum, part) => sum + part, 0);
        bar.value = all;
        const rate = all / Math.max((performance.now() - began) / 1000, 0.001);
        state.textContent = `${bytes(all)} of ${bytes(total)}, ${bytes(rate)}/s`;
      },
      waiting: (why) => (state.textContent = `Waiting: ${why}`),
    });
  running += 1;
  try {
    const cid = await work(put);
    bar.value = Math.max(total, 1);
    state.replaceChildren(`${bytes(total)}, `, contentLink(cid));
    row.dataset.cid = cid;
  } catch (error) {
    abort.abort();
    state.className = "bad";
    state.textContent = message(error);
  }
  running -= 1;
  cancel.remove();
}

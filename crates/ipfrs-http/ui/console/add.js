// Uploads of files and folders that are dropped or chosen.

import { h } from "../dom.js";
import { DaemonError, message, rpc } from "./api.js";
import { buildDirectory, checkLengths } from "./directory.js";
import { bytes, count, visible } from "./format.js";
import { attempt, button, contentLink, copyButton, notify } from "./parts.js";
import { forget, upload } from "./upload.js";

/** Number of files that are uploaded at the same time. */
const AT_A_TIME = 4;

/** Maximum number of unreadable files that a message names. */
const MOST_NAMED = 5;

/** @typedef {{ path: string, file: File }} Found A file with its path below what was dropped. */
/** @typedef {{ items: Found[], empty: string[] }} Folder Files, and paths of directories in which nothing was found. */

/** Rows of all uploads of this page, which continue while other views are shown. */
const rows = h("ul", { class: "cards" });
let running = 0;
window.addEventListener("beforeunload", (event) => {
  if (running > 0) event.preventDefault();
});

/** Uploads of files that may begin when others have ended. @type {(() => void)[]} */
const waiting = [];
let active = 0;

/**
 * Runs an upload when fewer than AT_A_TIME others run.
 * @template T
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
async function inTurn(work) {
  if (active >= AT_A_TIME) await /** @type {Promise<void>} */ (new Promise((resolve) => waiting.push(resolve)));
  else active += 1;
  try {
    return await work();
  } finally {
    const next = waiting.shift();
    if (next) next();
    else active -= 1;
  }
}

/** @type {import("./page.js").View} */
export function add(place) {
  const files = /** @type {HTMLInputElement} */ (h("input", { type: "file", multiple: true, hidden: true, id: "files" }));
  const folder = /** @type {HTMLInputElement} */ (h("input", { type: "file", hidden: true, id: "folder", webkitdirectory: true }));
  for (const input of [files, folder]) {
    input.addEventListener("change", () => {
      // The browser lists no directories without files.
      start({ items: [...(input.files ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file })), empty: [] });
      input.value = "";
    });
  }
  const drop = h(
    "div",
    { class: "drop" },
    h("p", {}, h("strong", {}, "Drop files or folders here")),
    h("button", { type: "button", class: "main", click: () => files.click() }, "Choose files"),
    " ",
    h("button", { type: "button", click: () => folder.click() }, "Choose a folder"),
    files,
    folder,
  );
  // The whole window takes files: a browser would open those that are dropped beside the area, instead of the console.
  const listening = new AbortController();
  const listen = (/** @type {string} */ kind, /** @type {(event: DragEvent) => void} */ listener) =>
    window.addEventListener(kind, /** @type {EventListener} */ (listener), { signal: listening.signal });
  for (const kind of ["dragenter", "dragover"]) {
    listen(kind, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  listen("dragleave", (event) => {
    if (event.relatedTarget === null) drop.classList.remove("over");
  });
  listen("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    attempt(async () => start(await dropped(event.dataTransfer)));
  });
  place.append(drop, h("p", { class: "dim" }, "What is added here is pinned. An interrupted upload continues when the connection returns, or when the same file is chosen again before upload.expires_after_seconds, a day by default."), rows);
  return () => listening.abort();
}

/**
 * Lists what was dropped, with the content of folders.
 * @param {DataTransfer | null} transfer
 * @returns {Promise<Folder>}
 */
async function dropped(transfer) {
  // Entries and files have to be taken before anything is awaited. Only what a file manager drops has entries.
  const items = [...(transfer?.items ?? [])].filter(({ kind }) => kind === "file").map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  /** @type {Folder} */
  const found = { items: [], empty: [] };
  /** @type {string[]} */
  const unreadable = [];
  for (const { entry, file } of items) {
    if (entry) await gather(entry, "", found, unreadable);
    else if (file) found.items.push({ path: file.name, file });
  }
  if (unreadable.length > 0) {
    const some = unreadable.slice(0, MOST_NAMED).map(visible).join(", ");
    notify(`The browser cannot read ${count(unreadable.length)} of the files, which are left out: ${some}. ipfrs-cli add -r adds them.`, true);
  }
  return found;
}

/**
 * Adds the files and empty directories of an entry to a list.
 * @param {FileSystemEntry} entry
 * @param {string} parent
 * @param {Folder} found
 * @param {string[]} unreadable Paths of files that the browser cannot open.
 */
async function gather(entry, parent, found, unreadable) {
  const path = `${parent}${entry.name}`;
  if (entry.isFile) {
    try {
      const file = await new Promise((resolve, reject) => /** @type {FileSystemFileEntry} */ (entry).file(resolve, reject));
      found.items.push({ path, file });
    } catch {
      // Browsers list symlinks and names that are not UTF-8, but cannot open them.
      unreadable.push(entry.name === "" ? `${path}(a name that is not UTF-8)` : path);
    }
    return;
  }
  const amount = () => found.items.length + found.empty.length;
  const before = amount();
  const reader = /** @type {FileSystemDirectoryEntry} */ (entry).createReader();
  for (;;) {
    /** @type {FileSystemEntry[]} */
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) break;
    for (const child of some) await gather(child, `${path}/`, found, unreadable);
  }
  if (amount() === before) found.empty.push(path);
}

/** Uploads single files, and each folder as a whole. @param {Folder} found */
function start({ items, empty }) {
  if (items.length + empty.length === 0) return notify("There are no files in it.");
  /** @type {Map<string, Folder>} */
  const folders = new Map();
  const folderOf = (/** @type {string} */ path) => {
    const [name] = path.split("/", 1);
    const folder = folders.get(name) ?? { items: [], empty: [] };
    folders.set(name, folder);
    return folder;
  };
  for (const item of items) {
    if (item.path.includes("/")) folderOf(item.path).items.push(item);
    else run(item.path, [item], async (put) => put(item, true));
  }
  for (const path of empty) folderOf(path).empty.push(path);
  for (const [name, { items, empty }] of folders) {
    const below = (/** @type {string} */ path) => path.slice(name.length + 1);
    const directories = empty.map(below);
    run(`${name}/`, items, async (put, report) => {
      checkLengths([...items.map(({ path }) => below(path)), ...directories]);
      const cids = new Map();
      await Promise.all(items.map(async (item) => cids.set(below(item.path), await put(item, false))));
      report("Building the directory");
      try {
        // The pin covers all files. It fails if a garbage collection was faster, and then all have to be sent again.
        const { cid } = await buildDirectory(cids, directories);
        await rpc("pin/add", [cid], { name }).catch((error) => {
          // Who may only write has the pin, but cannot name it.
          if (!(error instanceof DaemonError && error.status === 403)) throw error;
        });
        return cid;
      } finally {
        forget(items);
      }
    });
  }
}

/**
 * Runs an upload and shows its progress.
 * @param {string} title
 * @param {Found[]} items
 * @param {(put: (item: Found, pin: boolean) => Promise<string>, report: (text: string) => void) => Promise<string>} work
 */
async function run(title, items, work) {
  const total = items.reduce((sum, { file }) => sum + file.size, 0);
  const abort = new AbortController();
  const shown = visible(title);
  const bar = /** @type {HTMLProgressElement} */ (h("progress", { max: String(Math.max(total, 1)), value: "0", "aria-label": `Upload of ${shown}` }));
  const state = h("span", { class: "dim" }, "Waiting");
  const cancel = button("Cancel", async () => abort.abort(), `Cancel the upload of ${shown}`);
  cancel.classList.add("small");
  const heading = h("div", { class: "heading" }, h("strong", {}, h("bdi", {}, shown)), cancel);
  const row = h("li", { class: "tile" }, heading, bar, state);
  rows.prepend(row);
  let began = 0;
  let [all, finished] = [0, 0];
  const report = (/** @type {string} */ text) => (state.textContent = text);
  const put = (/** @type {Found} */ { path, file }, /** @type {boolean} */ pin) =>
    inTurn(async () => {
      abort.signal.throwIfAborted();
      began ||= performance.now();
      let sent = 0;
      const progress = (/** @type {number} */ amount) => {
        all += amount - sent;
        sent = amount;
        bar.value = all;
        const rate = all / Math.max((performance.now() - began) / 1000, 0.001);
        const files = items.length > 1 ? `${count(finished)} of ${count(items.length)} files, ` : "";
        report(`${files}${bytes(all)} of ${bytes(total)}, ${bytes(rate)}/s`);
      };
      const cid = await upload(file, { path, pin, signal: abort.signal, progress, waiting: (why) => report(`Waiting: ${why}`) });
      finished += 1;
      return cid;
    });
  running += 1;
  try {
    const cid = await work(put, report);
    bar.remove();
    const files = items.length > 1 ? `${count(items.length)} files, ` : "";
    state.replaceChildren(`Added ${files}${bytes(total)}: `, contentLink(cid), " ", copyButton(cid, `Copy the content ID of ${shown}`));
    row.dataset.cid = cid;
    notify(`Added ${shown}`);
  } catch (error) {
    const isCancelled = abort.signal.aborted;
    if (isCancelled) forget(items);
    abort.abort();
    bar.remove();
    state.className = isCancelled ? "dim" : "bad";
    report(isCancelled ? "Cancelled" : message(error));
    if (!isCancelled) notify(`${shown}: ${message(error)}`, true);
  }
  running -= 1;
  cancel.remove();
}

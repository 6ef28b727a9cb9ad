// Parts that several views use.

import { byId, h } from "../dom.js";
import { message } from "./api.js";
import { short } from "./format.js";

/**
 * Shows a message until it is dismissed, or for a while if it is not an error.
 * @param {string} text
 * @param {boolean} [isBad]
 */
export function notify(text, isBad = false) {
  const close = h("button", { type: "button", "aria-label": "Dismiss", click: () => notice.remove() }, "×");
  const notice = h("div", { class: isBad ? "notice bad" : "notice" }, h("span", {}, text), close);
  byId("notices").append(notice);
  if (!isBad) setTimeout(() => notice.remove(), 6000);
}

/**
 * Runs an action, and shows why it failed.
 * @param {() => Promise<unknown>} action
 */
export async function attempt(action) {
  try {
    await action();
  } catch (error) {
    notify(message(error), true);
  }
}

/**
 * A button that is disabled while its action runs.
 * @param {string} text
 * @param {() => Promise<unknown>} action
 * @param {string} [label] What it does, if the text alone does not say.
 */
export function button(text, action, label) {
  const element = /** @type {HTMLButtonElement} */ (h("button", { type: "button", ...(label ? { "aria-label": label } : {}) }, text));
  element.addEventListener("click", async () => {
    element.disabled = true;
    await attempt(action);
    element.disabled = false;
  });
  return element;
}

/**
 * Asks before something is removed.
 * @param {string} question
 * @param {string} yes
 * @returns {Promise<boolean>}
 */
export function confirmed(question, yes) {
  const dialog = /** @type {HTMLDialogElement} */ (
    h(
      "dialog",
      { "aria-label": question },
      h("p", {}, question),
      h("form", { method: "dialog", class: "row" }, h("button", { value: "yes", class: "main" }, yes), h("button", { value: "no" }, "Keep")),
    )
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}

/**
 * A link to content, by its path.
 * @param {string} path `{cid}[/path]`
 * @param {string} [text]
 */
export function contentLink(path, text) {
  const href = `#/content/${path.split("/").map(encodeURIComponent).join("/")}`;
  return h("a", { href, title: path, class: text === undefined ? "cid" : "" }, text ?? short(path));
}

/**
 * A table with its columns; columns whose name begins with "#" hold numbers.
 * @param {string} label
 * @param {string[]} columns
 * @param {HTMLElement} body
 */
export function table(label, columns, body) {
  const heads = columns.map((name) => (name.startsWith("#") ? h("th", { scope: "col", class: "number" }, name.slice(1)) : h("th", { scope: "col" }, name)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {}, h("thead", {}, h("tr", {}, ...heads)), body));
}

/** @param {string} text */
export const empty = (text) => h("p", { class: "empty" }, text);

/**
 * A table that loads page by page. `load` returns rows and the cursor of the next page, if there is one.
 * @param {string} label
 * @param {string[]} columns
 * @param {string} nothing Text instead of an empty table.
 * @param {(after: string | undefined) => Promise<{ rows: HTMLElement[], next: string | undefined }>} load
 */
export function pages(label, columns, nothing, load) {
  const body = h("tbody");
  const element = h("div");
  const more = button("Show more", () => add());
  /** @type {string | undefined} */
  let after;
  async function add() {
    const { rows, next } = await load(after);
    body.append(...rows);
    after = next;
    element.replaceChildren(...(body.children.length > 0 ? [table(label, columns, body)] : [empty(nothing)]));
    if (next !== undefined) element.append(h("p", { class: "row" }, more));
  }
  element.append(h("p", { class: "dim" }, "Loading"));
  const ready = add().catch((error) => element.replaceChildren(h("p", { class: "bad" }, message(error))));
  return { element, ready };
}

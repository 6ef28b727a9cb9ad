// Parts that several views use.

import { byId, h } from "../dom.js";
import { message } from "./api.js";
import { count, short, visible } from "./format.js";

/**
 * Shows a message until it is dismissed, or for a while if it is not an error.
 * @param {string} text
 * @param {boolean} [isBad]
 */
export function notify(text, isBad = false) {
  const close = h("button", { type: "button", "aria-label": "Dismiss", click: () => notice.remove() }, "×");
  const notice = h("div", isBad ? { class: "notice bad", role: "alert" } : { class: "notice" }, h("span", {}, text), close);
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
    const hadFocus = document.activeElement === element;
    element.disabled = true;
    await attempt(action);
    element.disabled = false;
    // A disabled button loses the focus.
    if (hadFocus) restoreFocus(element);
  });
  return element;
}

/**
 * Moves the focus to an element that had it, or to what replaced it, so that keyboards continue where they were.
 * @param {HTMLElement} element
 */
function restoreFocus(element) {
  if (document.activeElement !== document.body) return;
  const label = element.getAttribute("aria-label");
  const same = label === null ? null : byId("view").querySelector(`[aria-label="${CSS.escape(label)}"]`);
  const target = element.isConnected ? element : /** @type {HTMLElement} */ (same ?? byId("view"));
  target.focus({ preventScroll: true });
}

/**
 * A form in one row. Its button is disabled while its action runs.
 * @param {HTMLElement[]} inputs
 * @param {string} text
 * @param {() => Promise<unknown>} action
 * @param {string} [label] What it does, if the text alone does not say.
 */
export function rowForm(inputs, text, action, label) {
  const submit = /** @type {HTMLButtonElement} */ (h("button", { class: "main", ...(label ? { "aria-label": label } : {}) }, text));
  const form = h("form", { class: "row" }, ...inputs, submit);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (submit.disabled) return;
    const focused = document.activeElement;
    submit.disabled = true;
    await attempt(action);
    submit.disabled = false;
    if (focused instanceof HTMLElement && form.contains(focused)) restoreFocus(focused);
    // The form may have been replaced.
    else if (!form.isConnected) restoreFocus(submit);
  });
  return form;
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
  // The button that removes must not be chosen by an accidental Enter.
  /** @type {HTMLElement | null} */ (dialog.querySelector('[value="no"]'))?.focus();
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
  return h("a", { href, title: visible(path), class: text === undefined ? "cid" : "" }, h("bdi", {}, visible(text ?? short(path))));
}

/**
 * A table with its columns. Columns whose name begins with "#" hold numbers, and those with "~" are not shown on narrow
 * screens, where their cells need the class "wide", too.
 * @param {string} label
 * @param {string[]} columns
 * @param {HTMLElement} body
 */
export function table(label, columns, body) {
  const heads = columns.map((name) => {
    const kinds = [name.includes("#") ? "number" : "", name.includes("~") ? "wide" : ""].filter((kind) => kind !== "");
    const title = name.replace(/^[#~]+/, "");
    return h("th", { scope: "col", ...(kinds.length > 0 ? { class: kinds.join(" ") } : {}) }, title === "" ? h("span", { class: "unseen" }, "Actions") : title);
  });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {}, h("thead", {}, h("tr", {}, ...heads)), body));
}

/** Says why a view could not be loaded. It is loaded again when the connection recovers. @param {unknown} error */
export const failure = (error) => h("p", { class: "bad failed" }, message(error));

/** @param {string} text */
export const empty = (text) => h("p", { class: "empty" }, text);

/**
 * A table that loads page by page. `load` returns rows, the cursor of the next page if there is one, and the number of
 * all rows if it is known.
 * @param {string} label
 * @param {string[]} columns
 * @param {string} nothing Text instead of an empty table.
 * @param {(after: string | undefined) => Promise<{ rows: HTMLElement[], next: string | undefined, total?: number }>} load
 */
export function pages(label, columns, nothing, load) {
  const body = h("tbody");
  const element = h("div", {}, h("p", { class: "dim" }, "Loading"));
  const shown = h("span", { class: "dim", role: "status" });
  const more = button("Show more", () => add());
  const end = h("p", { class: "row more" }, more, shown);
  /** @type {string | undefined} */
  let after;
  let amount = 0;
  async function add() {
    const { rows, next, total } = await load(after);
    const isFirst = after === undefined;
    body.append(...rows);
    amount += rows.filter(({ className }) => className !== "detail").length;
    after = next;
    // The button stays on the page, so that it keeps the focus.
    if (isFirst) element.replaceChildren(...(amount > 0 ? [table(label, columns, body), end] : [empty(nothing)]));
    shown.textContent = `${count(amount)}${total !== undefined && total > amount ? ` of ${count(total)}` : ""} shown`;
    more.hidden = next === undefined;
    end.hidden = isFirst && next === undefined;
  }
  const ready = add().catch((error) => element.replaceChildren(failure(error)));
  return { element, ready };
}

/**
 * A list of names and values; those with an empty value are left out.
 * @param {[string, string | HTMLElement][]} list
 */
export function facts(list) {
  return h("dl", { class: "facts" }, ...list.filter(([, value]) => value !== "").flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/**
 * A button that copies a text.
 * @param {string} text
 * @param {string} label What it copies.
 */
export function copyButton(text, label) {
  const element = button("Copy", async () => {
    if (!navigator.clipboard) throw new Error("browsers copy only on pages from localhost or https: select the text instead");
    await navigator.clipboard.writeText(text);
    notify("Copied");
  }, label);
  element.classList.add("small");
  return element;
}

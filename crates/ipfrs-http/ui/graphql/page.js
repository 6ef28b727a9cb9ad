// The query page: an editor, variables, results, documentation and history.

import { byId, h } from "../dom.js";
import { Editor } from "../editor.js";
import { analyse } from "./analysis.js";
import { execute, subscribe } from "./client.js";
import { documentation } from "./docs.js";
import { tokens } from "./lexer.js";
import { Schema } from "./schema.js";

const HISTORY_KEY = "ipfrs.graphql.history";
const DRAFT_KEY = "ipfrs.graphql.draft";
/** Maximum number of operations in the history. */
const MOST_HISTORY = 50;
const TABS = ["documentation", "history"];
/** Maximum length of a text whose syntax is highlighted and checked. */
const MOST_ANALYSED = 100_000;
/** Maximum length of a result whose syntax is highlighted. */
const MOST_HIGHLIGHTED = 200_000;
/** Maximum number of results of a subscription that stay on the page. */
const MOST_RESULTS = 200;

const EXAMPLE = `# Ctrl+Enter runs the operation. Ctrl+Space completes.
query Overview {
  version { version peerId }
  stats { blocks diskBytes }
  pins(first: 10) {
    nodes { cid type name }
    pageInfo { hasNextPage endCursor }
  }
}
`;

/** @type {Schema | undefined} */
let schema;
/** @type {{ name: string, kind: string }[]} */
let operations = [];
/** @type {(() => void) | undefined} */
let stop;

const run = byId("run");
const chooser = /** @type {HTMLSelectElement} */ (byId("operation"));
const status = byId("status");
const result = byId("result");

const query = new Editor(
  "Query",
  (text, cursor) => {
    // The daemon refuses longer documents, too.
    if (text.length > MOST_ANALYSED) {
      operations = [];
      return { parts: [], mistakes: [], proposals: [], from: cursor };
    }
    const parts = tokens(text);
    if (!schema) return { parts, mistakes: [], proposals: [], from: cursor };
    const analysis = analyse(text, cursor, schema);
    operations = analysis.operations;
    return { parts, ...analysis };
  },
  () => {
    chooser.replaceChildren(...operations.map(({ name, kind }) => h("option", { value: name }, name === "" ? kind : `${kind} ${name}`)));
    chooser.hidden = operations.length < 2;
    save();
  },
);
const variables = new Editor(
  "Variables",
  (text, cursor) => {
    const mistakes = [];
    try {
      readVariables(text);
    } catch (error) {
      mistakes.push({ start: 0, end: text.length, message: error instanceof Error ? error.message : String(error) });
    }
    return { parts: text.length > MOST_ANALYSED ? [] : tokens(text), mistakes, proposals: [], from: cursor };
  },
  save,
);

function save() {
  store(DRAFT_KEY, { query: query.text, variables: variables.text });
}

/**
 * @param {string} key
 * @param {unknown} value
 */
function store(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // The storage is full or disabled. The page works without it.
  }
}

/**
 * @param {string} text
 * @returns {Record<string, unknown> | undefined}
 */
function readVariables(text) {
  if (text.trim() === "") return undefined;
  const value = JSON.parse(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error("variables must be a JSON object");
  return value;
}

/** @param {string} key */
function stored(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}

function remember() {
  const entry = { query: query.text, variables: variables.text };
  const same = (/** @type {typeof entry} */ other) => other.query === entry.query && other.variables === entry.variables;
  const entries = [entry, ...(stored(HISTORY_KEY) ?? []).filter((/** @type {typeof entry} */ other) => !same(other))];
  store(HISTORY_KEY, entries.slice(0, MOST_HISTORY));
  showHistory();
}

function showHistory() {
  const entries = stored(HISTORY_KEY) ?? [];
  const items = entries.map((/** @type {{ query: string, variables: string }} */ entry) =>
    h("li", {}, h("button", { type: "button", class: "link", click: () => { query.text = entry.query; variables.text = entry.variables; } }, entry.query.replace(/#.*/g, "").replace(/\s+/g, " ").trim().slice(0, 120) || "empty")),
  );
  byId("history").replaceChildren(items.length > 0 ? h("ul", {}, ...items) : h("p", {}, "Operations that were run are here."));
}

/** @param {boolean} isRunning */
function running(isRunning) {
  run.textContent = isRunning ? "Stop" : "Run";
  run.setAttribute("aria-keyshortcuts", "Control+Enter");
  if (!isRunning) stop = undefined;
}

/** @param {number} count @param {string} what */
const amount = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

/** Shows a result. @param {unknown} value */
function pretty(value) {
  const text = JSON.stringify(value, null, 2);
  if (text.length > MOST_HIGHLIGHTED) return h("pre", {}, text);
  const nodes = [];
  let at = 0;
  for (const { kind, start, end } of tokens(text)) {
    if (!["string", "number", "name"].includes(kind)) continue;
    const isKey = kind === "string" && text[end] === ":";
    nodes.push(text.slice(at, start), h("span", { class: isKey ? "key" : "number" }, text.slice(start, end)));
    at = end;
  }
  return h("pre", {}, ...nodes, text.slice(at));
}

async function start() {
  if (stop) return stop();
  let given;
  try {
    given = readVariables(variables.text);
  } catch (error) {
    status.textContent = `The variables are not JSON: ${error instanceof Error ? error.message : error}`;
    return;
  }
  const chosen = operations.length > 1 ? operations[chooser.selectedIndex] : operations[0];
  const operation = { query: query.text, variables: given, operationName: chosen?.name || undefined };
  remember();
  result.replaceChildren();
  running(true);
  const began = performance.now();
  const took = () => `${Math.round(performance.now() - began)} ms`;
  if (chosen?.kind === "subscription") {
    let count = 0;
    status.textContent = "Waiting for events";
    stop = subscribe(operation, {
      next: (value) => {
        count += 1;
        result.prepend(pretty(value));
        while (result.children.length > MOST_RESULTS) result.lastElementChild?.remove();
        status.textContent = amount(count, "result");
      },
      end: (reason) => {
        status.textContent = `${amount(count, "result")}, ${reason}`;
        running(false);
      },
    });
    return;
  }
  const abort = new AbortController();
  stop = () => abort.abort();
  status.textContent = "Running";
  try {
    const value = await execute(operation, abort.signal);
    result.replaceChildren(pretty(value));
    status.textContent = value.errors ? `${amount(value.errors.length, "error")}, ${took()}` : `Done in ${took()}`;
  } catch (error) {
    status.textContent = abort.signal.aborted ? "Stopped" : `Failed: ${error instanceof Error ? error.message : error}`;
  }
  running(false);
}

/** @param {string} chosen */
function choose(chosen) {
  for (const name of TABS) {
    byId(name).hidden = name !== chosen;
    byId(`${name}-tab`).setAttribute("aria-selected", String(name === chosen));
    byId(`${name}-tab`).tabIndex = name === chosen ? 0 : -1;
  }
}

byId("query").append(query.element);
byId("variables").append(variables.element);
for (const [index, name] of TABS.entries()) {
  const tab = byId(`${name}-tab`);
  tab.addEventListener("click", () => choose(name));
  tab.addEventListener("keydown", ({ key }) => {
    const step = { ArrowLeft: TABS.length - 1, ArrowRight: 1 }[key];
    if (step === undefined) return;
    const next = TABS[(index + step) % TABS.length];
    choose(next);
    byId(`${next}-tab`).focus();
  });
}
run.addEventListener("click", start);
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
    event.preventDefault();
    start();
  }
});
const draft = stored(DRAFT_KEY) ?? { query: EXAMPLE, variables: "" };
query.text = draft.query || EXAMPLE;
variables.text = draft.variables ?? "";
running(false);
showHistory();
choose("documentation");
try {
  schema = await Schema.load((text) => execute({ query: text }));
  byId("documentation").replaceChildren(documentation(schema));
  query.changed(false);
  status.textContent = "Ready";
} catch (error) {
  const why = error instanceof Error ? error.message : error;
  byId("documentation").replaceChildren(h("p", {}, `The schema could not be loaded: ${why}`));
  status.textContent = "Ready, without the schema";
}

// The console: views, which the part of the address after "#" selects, and the connection to the daemon. If the daemon
// authenticates its callers, a form for an API key comes first.

import { byId, h } from "../dom.js";
import { add } from "./add.js";
import { graphql, message } from "./api.js";
import { configuration } from "./configuration.js";
import { content } from "./content.js";
import { Live } from "./live.js";
import { names } from "./names.js";
import { operations } from "./operations.js";
import { beginCharts, overview } from "./overview.js";
import { pins } from "./pins.js";
import { enter } from "./session.js";

/**
 * A view shows itself in an element and returns what ends it.
 * @typedef {(place: HTMLElement, rest: string[], live: Live) => (() => void) | void} View
 */

/** @type {Record<string, { title: string, view: View }>} */
const VIEWS = {
  overview: { title: "Overview", view: overview },
  content: { title: "Content", view: content },
  add: { title: "Add", view: add },
  pins: { title: "Pins", view: pins },
  names: { title: "Names and keys", view: names },
  operations: { title: "Operations", view: operations },
  configuration: { title: "Configuration", view: configuration },
};

const place = byId("view");
const links = new Map(Object.entries(VIEWS).map(([name, { title }]) => [name, h("a", { href: `#/${name}` }, title)]));
byId("views").append(...[...links.values()].map((link) => h("li", {}, link)));

const connection = byId("connection");
/** @type {Live} */
let live;

/** @type {(() => void) | void} */
let end;

function show() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const chosen = Object.hasOwn(VIEWS, name) ? name : "overview";
  end?.();
  for (const [other, link] of links) {
    if (other === chosen) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // On a narrow screen, the list of views scrolls.
  links.get(chosen)?.scrollIntoView({ block: "nearest", inline: "center" });
  const { title, view } = VIEWS[chosen];
  document.title = `${title} - ipfrs`;
  place.replaceChildren(h("h2", {}, title));
  end = view(place, rest, live);
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function showVersion() {
  try {
    const { version } = await graphql("{ version { version } }");
    byId("version").textContent = `version ${version.version}`;
  } catch (error) {
    byId("version").textContent = message(error);
  }
}

function begin() {
  live = new Live((state, text) => {
    if (connection.className === "lost" && state === "live") {
      showVersion();
      if (place.querySelector(".failed")) show();
    }
    connection.className = state;
    connection.textContent = text;
  });
  window.addEventListener("hashchange", () => {
    show();
    window.scrollTo(0, 0);
    place.focus({ preventScroll: true });
  });
  show();
  showVersion();
  beginCharts();
}

byId("skip").addEventListener("click", (event) => {
  // The part of the address behind "#" selects the view.
  event.preventDefault();
  place.focus();
});
// Files that are dropped where no view takes them would be opened instead of the console.
for (const kind of ["dragover", "drop"]) window.addEventListener(kind, (event) => event.preventDefault());
if (await enter(place)) begin();

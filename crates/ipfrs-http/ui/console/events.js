// The latest events of the daemon.

import { h } from "../dom.js";
import { bytes, count, seconds, short, visible } from "./format.js";
import { contentLink } from "./parts.js";

/** @typedef {import("./live.js").DaemonEvent} DaemonEvent */

/** Maximum number of events of each topic. */
const MOST_EVENTS = 100;
/** Time in which events are gathered before they are drawn, in milliseconds. */
const DRAW_DELAY = 200;
const TOPICS = /** @type {const} */ (["blocks", "pins", "operations", "gc", "retrieval"]);

/** Lists the latest events, with a choice of topics: blocks would hide all others. */
export class EventList {
  /** @type {Map<string, DaemonEvent[]>} Events of each topic, the latest last. */
  #events = new Map(TOPICS.map((topic) => [topic, []]));
  #isStale = false;
  #skipped = 0;

  /** @param {import("./live.js").Live} live */
  constructor(live) {
    this.list = h("ol", { class: "log", "aria-label": "Latest events", tabindex: "0" });
    const options = [h("option", { value: "" }, "All topics"), ...TOPICS.map((topic) => h("option", { value: topic }, topic))];
    this.choice = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Topic", change: () => this.draw() }, ...options));
    this.elements = [h("div", { class: "heading" }, h("h3", {}, "Latest events"), this.choice), this.list];
    for (const kind of ["pointerleave", "focusout"]) this.list.addEventListener(kind, () => setTimeout(() => this.#isStale && this.draw(), 0));
    live.listen((event) => this.#note(event));
  }

  /** @param {DaemonEvent} event */
  #note(event) {
    if (event.topic === "lagged") this.#skipped += event.data;
    const events = this.#events.get(event.topic);
    events?.push(event);
    if (events && events.length > MOST_EVENTS) events.shift();
    // A busy daemon sends thousands of events per second, which are drawn together.
    if (!this.#isStale) setTimeout(() => this.#isStale && this.draw(), DRAW_DELAY);
    this.#isStale = true;
  }

  /** Shows the latest events, unless the list is not on the page, or a person is about to follow a link in it. */
  draw() {
    this.#isStale = true;
    if (!this.list.isConnected || this.list.matches(":hover, :focus-within")) return;
    this.#isStale = false;
    const topics = this.choice.value === "" ? [...TOPICS] : [this.choice.value];
    const events = topics.flatMap((topic) => this.#events.get(topic) ?? []);
    events.sort((a, b) => (a.time < b.time ? 1 : a.time > b.time ? -1 : b.seq - a.seq));
    const rows = events.slice(0, MOST_EVENTS).map((event) => {
      const time = h("time", { datetime: event.time }, new Date(event.time).toLocaleTimeString());
      return h("li", {}, time, h("span", { class: "badge" }, event.topic), h("span", {}, ...describe(event)));
    });
    if (rows.length === 0) rows.push(h("li", { class: "dim" }, "No events since this page was opened"));
    if (this.#skipped > 0) rows.push(h("li", { class: "dim" }, `${count(this.#skipped)} events were skipped, because this page was too slow for them`));
    this.list.replaceChildren(...rows);
  }
}

/** @param {DaemonEvent} event */
function describe({ topic, data }) {
  if (topic === "blocks") {
    const size = data.size === undefined ? "" : `, ${bytes(data.size)}`;
    return [`Block ${data.action}: `, contentLink(data.cid), size];
  }
  if (topic === "pins") return [data.action === "added" ? "Pinned: " : "Unpinned: ", contentLink(data.cid), data.name ? ` (${visible(data.name)})` : ""];
  if (topic === "operations") return [`${data.kind} ${visible(short(data.operation_id))}: ${data.state}, ${bytes(data.bytes)}`];
  return [`Garbage collection: ${collection(data)}`];
}

/**
 * Describes the phase of a garbage collection.
 * @param {any} data
 */
export function collection(data) {
  switch (data.phase) {
    case "marked":
      return `marking, ${count(data.blocks)} blocks are kept so far`;
    case "swept":
      return `sweeping, ${count(data.blocks)} blocks were examined so far`;
    case "compacting":
      return "freeing disk space";
    case "done":
      return `removed ${count(data.removed)} blocks (${bytes(data.removed_bytes)}) and kept ${count(data.kept)} in ${seconds(data.duration_seconds)}; ${bytes(data.freed_bytes)} of disk space became free`;
    case "failed":
      return `failed: ${data.error}`;
    default:
      return data.phase;
  }
}

// Charts of what the daemon does, and its latest events.

import { h } from "../dom.js";
import { Chart } from "./chart.js";
import { bytes, count, percent, seconds, short } from "./format.js";
import { Metrics } from "./metrics.js";
import { contentLink } from "./parts.js";

/** Time between two reads of the metrics, in milliseconds. */
const INTERVAL = 2000;
/** Maximum number of events on the page. */
const MOST_EVENTS = 100;
const DURATION = "ipfrs_http_request_duration_seconds";

const charts = {
  requests: new Chart("Requests per second", ["HTTP", "gRPC"], count),
  latency: new Chart("Time per request", ["median", "90 %", "99 %"], seconds),
  traffic: new Chart("Bytes per second", ["sent", "imported"], bytes, 1024),
  open: new Chart("Open", ["connections", "requests", "WebSockets"], count),
  blocks: new Chart("Blocks per second", ["read", "written"], count),
  cache: new Chart("Cache hits", ["share of lookups"], percent),
  failures: new Chart("Failed requests per second", ["4xx", "5xx", "refused by a limit"], count),
  memory: new Chart("Memory", ["process, with mapped packs", "caches"], bytes, 1024),
};

/** Tiles: name, and the value from the metrics. */
const TILES = /** @type {const} */ ([
  ["Blocks", "ipfrs_store_blocks", count],
  ["On disk", "ipfrs_store_disk_bytes", bytes],
  ["Pins", "ipfrs_pins", count],
  ["Sent", "ipfrs_http_response_size_bytes_sum", bytes],
  ["Freed by gc", "ipfrs_gc_freed_bytes_total", bytes],
  ["Running gc", "ipfrs_gc_running", count],
]);
const tiles = TILES.map(([name]) => ({ name, value: h("dd", {}, "-") }));
const events = h("ol", { class: "log", "aria-label": "Latest events", tabindex: "0" });

/** @type {Metrics | undefined} */
let last;
/** @type {(() => void) | undefined} Ends the listener for events, which continues while other views are shown. */
let listening;

/** Reads the metrics and adds a point to each chart. */
async function read() {
  if (document.hidden) return;
  let now;
  try {
    now = await Metrics.read();
  } catch {
    // The connection's state is shown elsewhere. The charts have a gap.
    for (const chart of Object.values(charts)) chart.push(performance.now() / 1000, chart.names.map(() => NaN));
    last = undefined;
    return;
  }
  for (const [index, [, family, format]] of TILES.entries()) tiles[index].value.textContent = format(now.sum(family));
  if (last) plot(last, now);
  last = now;
}

/**
 * @param {Metrics} before
 * @param {Metrics} now
 */
function plot(before, now) {
  const rate = (/** @type {string} */ name, /** @type {((labels: Record<string, string>) => boolean) | undefined} */ counts) => now.rate(before, name, counts);
  const status = (/** @type {string} */ first) => (/** @type {Record<string, string>} */ labels) => labels.status.startsWith(first);
  const hits = rate("ipfrs_cache_hits_total", undefined);
  const lookups = hits + rate("ipfrs_cache_misses_total", undefined);
  const add = (/** @type {Chart} */ chart, /** @type {number[]} */ ...values) => chart.push(now.time, values);
  // The request for the metrics does not count.
  const requests = rate("ipfrs_http_requests_total", ({ endpoint }) => endpoint !== "/metrics");
  add(charts.requests, requests, rate("ipfrs_grpc_requests_total", undefined));
  add(charts.latency, ...[0.5, 0.9, 0.99].map((share) => now.percentile(before, DURATION, share, ({ endpoint }) => endpoint !== "/metrics")));
  add(charts.traffic, rate("ipfrs_http_response_size_bytes_sum", ({ endpoint }) => endpoint !== "/metrics"), rate("ipfrs_upload_bytes_total", undefined));
  add(charts.open, now.sum("ipfrs_http_connections_active"), now.sum("ipfrs_http_requests_active"), now.sum("ipfrs_websocket_connections_active"));
  add(charts.blocks, rate("ipfrs_blocks_retrieved_total", undefined), rate("ipfrs_blocks_stored_total", undefined));
  add(charts.cache, lookups > 0 ? hits / lookups : NaN);
  add(charts.failures, rate("ipfrs_http_requests_total", status("4")), rate("ipfrs_http_requests_total", status("5")), rate("ipfrs_refusals_total", undefined));
  add(charts.memory, now.sum("process_resident_memory_bytes"), now.sum("ipfrs_cache_size_bytes"));
}

/** @param {import("./live.js").DaemonEvent} event */
function describe({ topic, data }) {
  if (topic === "blocks") {
    const size = data.size === undefined ? "" : `, ${bytes(data.size)}`;
    return [`Block ${data.action}: `, contentLink(data.cid), size];
  }
  if (topic === "pins") return [data.action === "added" ? "Pinned: " : "Unpinned: ", contentLink(data.cid), data.name ? ` (${data.name})` : ""];
  if (topic === "operations") return [`${data.kind} ${short(data.operation_id)}: ${data.state}, ${bytes(data.bytes)}`];
  return [`Garbage collection: ${data.phase}${data.error ? `, ${data.error}` : ""}`];
}

/** @type {import("./page.js").View} */
export function overview(place, _, live) {
  listening ??= live.listen((event) => {
    const time = new Date(event.time);
    events.prepend(h("li", {}, h("time", { datetime: event.time }, time.toLocaleTimeString()), h("span", {}, ...describe(event))));
    while (events.children.length > MOST_EVENTS) events.lastElementChild?.remove();
  });
  place.append(
    h("dl", { class: "tiles" }, ...tiles.map(({ name, value }) => h("div", { class: "tile" }, h("dt", {}, name), value))),
    h("div", { class: "charts" }, ...Object.values(charts).map((chart) => chart.element)),
    h("h3", {}, "Latest events"),
    events,
  );
}

// The charts continue while other views are shown.
read();
setInterval(read, INTERVAL);

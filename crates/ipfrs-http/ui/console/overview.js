// Charts of what the daemon does, and its latest events.

import { h } from "../dom.js";
import { Chart } from "./chart.js";
import { bytes, count, percent, seconds } from "./format.js";
import { EventList } from "./events.js";
import { Metrics } from "./metrics.js";

/** Time between two reads of the metrics, in milliseconds. */
const INTERVAL = 2000;
const DURATION = "ipfrs_http_request_duration_seconds";

const charts = {
  requests: new Chart("Requests per second", ["HTTP", "gRPC"], count),
  latency: new Chart("Time per request", ["99 %", "90 %", "median"], seconds),
  traffic: new Chart("Bytes per second", ["sent", "imported"], bytes, 1024),
  open: new Chart("Connections and requests", ["connections", "running requests", "WebSockets"], count),
  failures: new Chart("Failed requests per second", ["4xx", "5xx", "refused by a limit"], count),
  blocks: new Chart("Blocks per second", ["read", "written", "removed by gc"], count),
  cache: new Chart("Cache hits", ["share of lookups"], percent),
  store: new Chart("Store", ["on disk", "freed by gc"], bytes, 1024),
  memory: new Chart("Memory", ["process, with mapped packs", "caches"], bytes, 1024),
};

/** Tiles: name, and their text from the metrics. */
const TILES = /** @type {[string, (now: Metrics) => string][]} */ ([
  ["Blocks", (now) => count(now.sum("ipfrs_store_blocks"))],
  ["On disk", (now) => bytes(now.sum("ipfrs_store_disk_bytes"))],
  ["Pins", (now) => count(now.sum("ipfrs_pins"))],
  ["Sent", (now) => bytes(now.sum("ipfrs_http_response_size_bytes_sum"))],
  ["Garbage collection", (now) => (now.sum("ipfrs_gc_running") > 0 ? "running" : "idle")],
  ["Running for", (now) => seconds(Math.max(now.time - now.sum("process_start_time_seconds"), 0))],
]);
const tiles = TILES.map(([name]) => ({ name, value: h("dd", {}, "-") }));

/** @type {Metrics | undefined} */
let last;
/** @type {EventList | undefined} Events are noted while other views are shown, too. */
let events;

/** Reads the metrics and adds a point to each chart. */
async function read() {
  if (document.hidden) return;
  let now;
  try {
    now = await Metrics.read();
  } catch {
    // The connection's state is shown elsewhere. The charts have a gap.
    for (const chart of Object.values(charts)) chart.push(Date.now() / 1000, chart.names.map(() => NaN));
    last = undefined;
    return;
  }
  for (const [index, [, text]] of TILES.entries()) tiles[index].value.textContent = text(now);
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
  // Requests for the metrics do not count.
  const isNoScrape = (/** @type {Record<string, string>} */ { endpoint }) => !["/metrics", "/debug/metrics/prometheus"].includes(endpoint);
  const requests = rate("ipfrs_http_requests_total", isNoScrape);
  add(charts.requests, requests, rate("ipfrs_grpc_requests_total", undefined));
  add(charts.latency, ...[0.99, 0.9, 0.5].map((share) => now.percentile(before, DURATION, share, isNoScrape)));
  add(charts.traffic, rate("ipfrs_http_response_size_bytes_sum", isNoScrape), rate("ipfrs_upload_bytes_total", undefined));
  add(charts.open, now.sum("ipfrs_http_connections_active"), now.sum("ipfrs_http_requests_active"), now.sum("ipfrs_websocket_connections_active"));
  add(charts.failures, rate("ipfrs_http_requests_total", status("4")), rate("ipfrs_http_requests_total", status("5")), rate("ipfrs_refusals_total", undefined));
  add(charts.blocks, rate("ipfrs_blocks_retrieved_total", undefined), rate("ipfrs_blocks_stored_total", undefined), rate("ipfrs_gc_removed_blocks_total", undefined));
  add(charts.cache, lookups > 0 ? hits / lookups : NaN);
  add(charts.store, now.sum("ipfrs_store_disk_bytes"), now.sum("ipfrs_gc_freed_bytes_total"));
  add(charts.memory, now.sum("process_resident_memory_bytes"), now.sum("ipfrs_cache_size_bytes"));
}

/** @type {import("./page.js").View} */
export function overview(place, _, live) {
  events ??= new EventList(live);
  place.append(
    h("dl", { class: "tiles" }, ...tiles.map(({ name, value }) => h("div", { class: "tile" }, h("dt", {}, name), value))),
    h("div", { class: "charts" }, ...Object.values(charts).map((chart) => chart.element)),
    ...events.elements,
  );
  for (const chart of Object.values(charts)) chart.draw();
  events.draw();
}

/** Begins the charts, which continue while other views are shown. */
export function beginCharts() {
  read();
  setInterval(read, INTERVAL);
}

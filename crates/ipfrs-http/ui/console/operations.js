// Running operations, which can be cancelled, and garbage collection.

import { h } from "../dom.js";
import { request, rpc } from "./api.js";
import { collection } from "./events.js";
import { bytes, count, seconds, short, visible } from "./format.js";
import { attempt, button, confirmed, empty, notify, table } from "./parts.js";

/** Maximum number of operations in the table. Those that ended first are left out. */
const MOST_ROWS = 200;

/** @type {import("./page.js").View} */
export function operations(place, _, live) {
  /** @type {Map<string, ReturnType<typeof create>>} */
  const known = new Map();
  const body = h("tbody");
  const shown = h("div");
  const list = table("Operations", ["Operation", "~Kind", "State", "Progress", "~#Rate", "~#Left", ""], body);
  const arrange = () => {
    const wanted = body.children.length > 0 ? list : empty("No operation is running. Uploads and imports are shown here.");
    if (!list.isConnected || wanted !== list) shown.replaceChildren(wanted);
  };

  /** @param {any} report */
  const update = (report) => {
    let entry = known.get(report.operation_id);
    if (!entry) {
      entry = create(report.operation_id);
      known.set(report.operation_id, entry);
      body.prepend(entry.row);
      if (known.size > MOST_ROWS) forget([...known].find(([, { isOver }]) => isOver)?.[0]);
      arrange();
    }
    entry.update(report);
  };

  /** @param {string | undefined} id */
  const forget = (id) => {
    if (id === undefined) return;
    known.get(id)?.row.remove();
    known.delete(id);
  };

  /** Loads all running operations, and drops those that ended without an event, as in a restart. */
  const load = async () => {
    const response = await request("/v1/progress");
    /** @type {any[]} */
    const reports = (await response.json()).operations;
    const running = new Set(reports.map((report) => report.operation_id));
    for (const [id, { isOver }] of known) if (!isOver && !running.has(id)) forget(id);
    for (const report of reports) update(report);
    arrange();
  };

  const phase = h("p", { class: "dim", role: "status" });
  const collect = button("Collect garbage", async () => {
    if (!(await confirmed("Remove all blocks that no pin covers?", "Remove"))) return;
    phase.textContent = "Started";
    const removed = await rpc("repo/gc");
    notify(`Removed ${count(removed.filter((line) => line.Key).length)} blocks`);
  });
  place.append(
    shown,
    h("h3", {}, "Garbage collection"),
    h("p", {}, "Removes all blocks that no pin covers, and frees their disk space. Requests are served in the meantime."),
    h("p", { class: "row" }, collect),
    phase,
  );
  arrange();
  attempt(load);
  return live.listen(({ topic, data }) => {
    if (topic === "operations") update(data);
    if (topic === "recovered") attempt(load);
    if (topic === "gc") phase.textContent = `Last report: ${collection(data)}`;
  });
}

/** A row of the table. @param {string} id */
function create(id) {
  const cancel = button("Cancel", async () => {
    await request(`/v1/progress/${encodeURIComponent(id)}`, { method: "DELETE" });
    notify("Cancelled");
  }, `Cancel operation ${visible(id)}`);
  cancel.classList.add("small");
  const bar = /** @type {HTMLProgressElement} */ (h("progress", { "aria-label": `Progress of ${visible(id)}` }));
  const [kind, state, amount] = [h("td", { class: "wide" }), h("td"), h("span")];
  const [rate, left] = [h("td", { class: "number wide" }), h("td", { class: "number wide" })];
  const name = h("th", { scope: "row", title: visible(id), class: "cid" }, visible(short(id)));
  const row = h("tr", {}, name, kind, state, h("td", { class: "progress" }, amount, bar), rate, left, h("td", { class: "act" }, cancel));
  const entry = {
    row,
    isOver: false,
    /** @param {any} report */
    update(report) {
      entry.isOver = ["done", "failed"].includes(report.state);
      kind.textContent = report.kind;
      state.textContent = report.state === "failed" ? `failed: ${report.error}` : report.state;
      state.className = report.state === "failed" ? "bad" : "";
      amount.textContent = report.total === undefined ? bytes(report.bytes) : `${bytes(report.bytes)} of ${bytes(report.total)}`;
      if (report.total !== undefined) {
        bar.max = Math.max(report.total, 1);
        bar.value = Math.min(report.bytes, bar.max);
      }
      if (report.state === "done") bar.value = bar.max;
      // Without a total, a bar without a value moves, as if the operation were running.
      bar.hidden = entry.isOver && report.state !== "done";
      const isMoving = !entry.isOver && report.rate_bytes_per_second > 0;
      rate.textContent = isMoving ? `${bytes(report.rate_bytes_per_second)}/s` : "";
      left.textContent = entry.isOver || report.eta_seconds === undefined ? "" : seconds(report.eta_seconds);
      if (entry.isOver) cancel.remove();
    },
  };
  return entry;
}

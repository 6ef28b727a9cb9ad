// Running operations, which can be cancelled, and garbage collection.

import { h } from "../dom.js";
import { message, request, rpc } from "./api.js";
import { bytes, seconds, short } from "./format.js";
import { attempt, button, confirmed, empty, notify, table } from "./parts.js";

/** @type {import("./page.js").View} */
export function operations(place, _, live) {
  /** @type {Map<string, { row: HTMLElement, cells: HTMLElement[], bar: HTMLProgressElement, cancel: HTMLElement }>} */
  const known = new Map();
  const body = h("tbody");
  const shown = h("div", { "aria-live": "polite" });
  const list = table("Operations", ["Operation", "Kind", "State", "Progress", "#Rate", "#Left", ""], body);
  const arrange = () => shown.replaceChildren(body.children.length > 0 ? list : empty("No operation is running. Uploads and imports are shown here."));

  /** @param {any} report */
  const update = (report) => {
    const entry = known.get(report.operation_id) ?? create(report.operation_id);
    const isOver = ["done", "failed"].includes(report.state);
    const [state, amount, rate, left] = entry.cells;
    state.textContent = report.state === "failed" ? `failed: ${report.error}` : report.state;
    state.className = report.state === "failed" ? "bad" : "";
    amount.textContent = report.total === undefined ? bytes(report.bytes) : `${bytes(report.bytes)} of ${bytes(report.total)}`;
    if (report.total !== undefined) {
      entry.bar.max = Math.max(report.total, 1);
      entry.bar.value = isOver ? entry.bar.max : report.bytes;
    } else if (isOver) entry.bar.value = 1;
    rate.textContent = report.rate_bytes_per_second > 0 ? `${bytes(report.rate_bytes_per_second)}/s` : "";
    left.textContent = report.eta_seconds === undefined ? "" : seconds(report.eta_seconds);
    entry.row.children[1].textContent = report.kind;
    if (isOver) entry.cancel.remove();
  };

  /** @param {string} id */
  const create = (id) => {
    const cancel = button("Cancel", async () => {
      await request(`/v1/progress/${encodeURIComponent(id)}`, { method: "DELETE" });
      notify("Cancelled");
    }, `Cancel operation ${id}`);
    const bar = /** @type {HTMLProgressElement} */ (h("progress", { "aria-label": `Progress of ${id}` }));
    const cells = [h("td"), h("span"), h("td", { class: "number" }), h("td", { class: "number" })];
    const row = h("tr", {}, h("th", { scope: "row", title: id, class: "cid" }, short(id)), h("td"), cells[0], h("td", {}, cells[1], bar), cells[2], cells[3], h("td", { class: "act" }, cancel));
    const entry = { row, cells, bar, cancel };
    known.set(id, entry);
    body.prepend(row);
    arrange();
    return entry;
  };

  const phase = h("p", { class: "dim", role: "status" });
  const collect = button("Collect garbage", async () => {
    if (!(await confirmed("Remove all blocks that no pin covers?", "Remove"))) return;
    const removed = await rpc("repo/gc");
    notify(`Removed ${removed.length} blocks`);
  });
  place.append(shown, h("h3", {}, "Garbage collection"), h("p", { class: "row" }, collect), phase);
  arrange();
  attempt(async () => {
    const response = await request("/v1/progress");
    for (const report of (await response.json()).operations) update(report);
  });
  return live.listen(({ topic, data }) => {
    if (topic === "operations") update(data);
    if (topic === "gc") phase.textContent = `${data.phase}${data.blocks === undefined ? "" : `, ${data.blocks} blocks`}${data.error ? `: ${message(new Error(data.error))}` : ""}`;
  });
}

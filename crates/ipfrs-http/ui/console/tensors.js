// Tensors of a file, with statistics and a histogram of their values.

import { h, svg } from "../dom.js";
import { graphql, request } from "./api.js";
import { bars } from "./chart.js";
import { bytes, count, visible } from "./format.js";
import { button, facts, pages } from "./parts.js";

const TENSORS = `query ($path: String!, $after: String) {
  tensors(path: $path, first: 100, after: $after) {
    nodes { name dtype shape sizeBytes }
    pageInfo { hasNextPage endCursor }
  }
}`;
/** Maximum number of elements in a histogram, and its bins. */
const SAMPLE = 65_536;
const BINS = 48;

/** Readers of elements by type: bytes of an element, and how it is read. */
const READERS = /** @type {Record<string, [number, (view: DataView, at: number) => number]>} */ ({
  F64: [8, (view, at) => view.getFloat64(at, true)],
  F32: [4, (view, at) => view.getFloat32(at, true)],
  F16: [2, (view, at) => half(view.getUint16(at, true))],
  BF16: [2, (view, at) => bfloat(view.getUint16(at, true))],
  I64: [8, (view, at) => Number(view.getBigInt64(at, true))],
  U64: [8, (view, at) => Number(view.getBigUint64(at, true))],
  I32: [4, (view, at) => view.getInt32(at, true)],
  U32: [4, (view, at) => view.getUint32(at, true)],
  I16: [2, (view, at) => view.getInt16(at, true)],
  U16: [2, (view, at) => view.getUint16(at, true)],
  I8: [1, (view, at) => view.getInt8(at)],
  U8: [1, (view, at) => view.getUint8(at)],
  BOOL: [1, (view, at) => view.getUint8(at)],
});

/** @param {number} bits */
function half(bits) {
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const scratch = new DataView(new ArrayBuffer(4));
/** @param {number} bits */
function bfloat(bits) {
  scratch.setUint32(0, bits << 16);
  return scratch.getFloat32(0);
}

/**
 * A table of the tensors of a file.
 * @param {string} cid
 */
export function tensors(cid) {
  return pages("Tensors", ["Name", "Type", "Shape", "~#Size", ""], "The file has no tensors.", async (after) => {
    const { tensors } = await graphql(TENSORS, { path: `/ipfs/${cid}`, after });
    const rows = tensors.nodes.map((/** @type {any} */ tensor) => {
      const details = h("td", { colspan: "5" });
      const row = h("tr", { class: "detail", hidden: true }, details);
      const show = button("Statistics", async () => {
        if (row.hidden) details.replaceChildren(await statistics(cid, tensor));
        row.hidden = !row.hidden;
        show.setAttribute("aria-expanded", String(!row.hidden));
      }, `Statistics of ${tensor.name || "the tensor"}`);
      show.setAttribute("aria-expanded", "false");
      show.classList.add("small");
      const cells = [h("th", { scope: "row", class: "name" }, visible(tensor.name) || "(unnamed)"), h("td", {}, tensor.dtype), h("td", {}, tensor.shape.join(" × ") || "scalar"), h("td", { class: "number wide" }, bytes(tensor.sizeBytes)), h("td", { class: "act" }, show)];
      return [h("tr", {}, ...cells), row];
    });
    return { rows: rows.flat(), next: tensors.pageInfo.hasNextPage ? tensors.pageInfo.endCursor : undefined };
  }).element;
}

/**
 * @param {string} cid
 * @param {any} tensor
 */
async function statistics(cid, tensor) {
  const address = `/v1/tensor/${cid}`;
  const name = `name=${encodeURIComponent(tensor.name)}`;
  const { tensors } = await (await request(`${address}/stats?${name}`)).json();
  const stats = tensors[0];
  const number = (/** @type {number | null} */ value) => (value === null ? "-" : Number(value.toPrecision(6)).toString());
  const kinds = [{ name: "zero", value: stats.zero }, { name: "NaN", value: stats.nan }, { name: "infinite", value: stats.inf }, { name: "other", value: stats.count - stats.zero - stats.nan - stats.inf }];
  const numbers = h(
    "div",
    {},
    facts([["Elements", count(stats.count)], ["Minimum", number(stats.min)], ["Mean", number(stats.mean)], ["Maximum", number(stats.max)], ["Standard deviation", number(stats.std)]]),
    bars("Elements by kind", kinds.map(({ name, value }) => ({ name, value, text: count(value) }))),
  );
  const values = await sample(`${address}?${tensor.name === "" ? "" : `${name}&`}`, tensor);
  const isPlotted = values.length > 0 && Number.isFinite(stats.min) && Number.isFinite(stats.max);
  return h("div", { class: "statistics" }, numbers, isPlotted ? histogram(values, stats) : "");
}

/**
 * Reads the first rows of a tensor, up to SAMPLE elements.
 * @param {string} address
 * @param {any} tensor
 */
async function sample(address, tensor) {
  const reader = READERS[tensor.dtype];
  if (!reader || tensor.sizeBytes === 0) return [];
  const [width, get] = reader;
  const row = tensor.shape.slice(1).reduce((/** @type {number} */ product, /** @type {number} */ size) => product * size, 1);
  if (row > SAMPLE * 16) return [];
  const rows = Math.max(1, Math.floor(SAMPLE / Math.max(row, 1)));
  const slice = tensor.shape.length === 0 ? "" : `slice=0:${rows}`;
  const view = new DataView(await (await request(`${address}${slice}`)).arrayBuffer());
  const values = [];
  for (let at = 0; at + width <= view.byteLength; at += width) values.push(get(view, at));
  return values.filter(Number.isFinite);
}

/**
 * A histogram, with lines at the mean and one standard deviation beside it.
 * @param {number[]} values
 * @param {{ count: number, nan: number, inf: number, mean: number | null, std: number | null }} stats Statistics of all elements.
 */
function histogram(values, stats) {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, value), Math.max(most, value)];
  const width = (most - least) / BINS || 1;
  const bins = Array.from({ length: BINS }, () => 0);
  for (const value of values) bins[Math.min(Math.floor((value - least) / width), BINS - 1)] += 1;
  const highest = Math.max(...bins);
  const columns = bins.map((amount, index) => {
    const height = (amount / highest) * 100;
    return svg("rect", { class: "bar", x: String(index * 10), y: String(100 - height), width: "9", height: String(height) });
  });
  const place = (/** @type {number} */ value) => (((value - least) / width) * 10).toFixed(1);
  const { mean, std } = stats;
  const marks = mean === null || std === null ? [] : [mean - std, mean, mean + std].filter((value) => least <= value && value <= most);
  const lines = marks.map((value) => svg("line", { class: value === mean ? "mark mean" : "mark", x1: place(value), x2: place(value), y1: "0", y2: "100" }));
  const drawing = svg("svg", { viewBox: `0 0 ${BINS * 10} 100`, preserveAspectRatio: "none", role: "img", "aria-label": `Histogram of ${count(values.length)} values from ${least} to ${most}` }, ...columns, ...lines);
  const isPart = values.length < stats.count - stats.nan - stats.inf;
  const short = (/** @type {number} */ value) => h("span", {}, Number(value.toPrecision(4)).toString());
  const scale = h("div", { class: "scale", "aria-hidden": "true" }, h("span", {}, count(highest)), h("span", {}, "0"));
  const about = lines.length > 0 ? `Lines: the mean${std ? " and one standard deviation beside it" : ""}.` : "";
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, isPart ? `Distribution of the first ${count(values.length)} values` : "Distribution of the values"),
    h("div", { class: "drawing" }, scale, h("div", { class: "plot" }, drawing), h("div", { class: "axis" }, short(least), short((least + most) / 2), short(most))),
    h("p", { class: "legend" }, about),
  );
}

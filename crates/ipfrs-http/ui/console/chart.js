// Charts of values over time, drawn with SVG.

import { h, svg } from "../dom.js";

/** Number of points that a chart keeps. */
const MOST_POINTS = 180;
const WIDTH = 600;
const HEIGHT = 140;

/** Lines over time. Values that are not finite leave a gap. */
export class Chart {
  /**
   * @param {string} title
   * @param {string[]} names Names of the lines.
   * @param {(value: number) => string} format
   * @param {number} [unit] Ratio of the units that `format` uses.
   */
  constructor(title, names, format, unit = 1000) {
    this.title = title;
    this.names = names;
    this.format = format;
    this.unit = unit;
    /** @type {{ time: number, values: number[] }[]} */
    this.points = [];
    /** @type {number | undefined} Index of the point under the pointer. */
    this.chosen = undefined;
    this.lines = names.map((_, index) => svg("path", { class: `line line-${index}` }));
    this.marker = svg("line", { class: "marker", y1: "0", y2: String(HEIGHT) });
    this.top = h("span", { class: "scale" });
    this.plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.marker, ...this.lines);
    this.values = names.map((name, index) => h("output", { class: `line-${index}`, "aria-label": `${title}: ${name}` }, "-"));
    this.legend = h("ul", { class: "legend" }, ...names.map((name, index) => h("li", {}, h("span", { class: `swatch line-${index}` }), `${name} `, this.values[index])));
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, title), h("div", { class: "plot" }, this.top, this.plot), this.legend);
    this.plot.addEventListener("pointermove", (event) => this.#choose(event));
    this.plot.addEventListener("pointerleave", () => this.#choose(undefined));
  }

  /**
   * Adds a point.
   * @param {number} time Seconds.
   * @param {number[]} values One for each line.
   */
  push(time, values) {
    this.points.push({ time, values });
    if (this.points.length > MOST_POINTS) this.points.shift();
    this.draw();
  }

  /** @param {PointerEvent | undefined} event */
  #choose(event) {
    const { left, width } = this.plot.getBoundingClientRect();
    const place = event && Math.round(((event.clientX - left) / width) * (MOST_POINTS - 1));
    const index = place === undefined ? undefined : place - (MOST_POINTS - this.points.length);
    this.chosen = index !== undefined && this.points[index] ? index : undefined;
    this.draw();
  }

  draw() {
    const finite = this.points.flatMap(({ values }) => values.filter(Number.isFinite));
    const most = Math.max(...finite, 0);
    const scale = niceAbove(most, this.unit);
    const x = (/** @type {number} */ index) => ((MOST_POINTS - this.points.length + index) / (MOST_POINTS - 1)) * WIDTH;
    const y = (/** @type {number} */ value) => HEIGHT - 2 - (value / scale) * (HEIGHT - 8);
    for (const [line, path] of this.lines.entries()) {
      let isOpen = false;
      const steps = this.points.map(({ values }, index) => {
        const value = values[line];
        if (!Number.isFinite(value)) {
          isOpen = false;
          return "";
        }
        const step = `${isOpen ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
        isOpen = true;
        return step;
      });
      path.setAttribute("d", steps.join(""));
    }
    this.top.textContent = most > 0 ? this.format(scale) : "";
    const shown = this.points[this.chosen ?? this.points.length - 1];
    for (const [line, output] of this.values.entries()) output.textContent = shown ? this.format(shown.values[line]) : "-";
    this.marker.classList.toggle("shown", this.chosen !== undefined);
    const place = String(x(this.chosen ?? 0));
    this.marker.setAttribute("x1", place);
    this.marker.setAttribute("x2", place);
  }
}

/**
 * Bars from a list of parts.
 * @param {string} title
 * @param {{ name: string, value: number, text: string }[]} parts
 */
export function bars(title, parts) {
  const most = Math.max(...parts.map(({ value }) => value), 0) || 1;
  const rows = parts.map(({ name, value, text }) => {
    const bar = svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: "bar", width: String((Math.max(value, 0) / most) * 100), height: "8" }));
    return h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "track" }, bar), h("td", { class: "number" }, text));
  });
  return h("table", { class: "bars" }, h("caption", {}, title), h("tbody", {}, ...rows));
}

/**
 * Returns 1, 2 or 5 times a power of ten of a unit, not below a value.
 * @param {number} value
 * @param {number} unit
 */
function niceAbove(value, unit) {
  if (!(value > 0)) return 1;
  const size = value < 1 ? 1 : unit ** Math.floor(Math.log(value) / Math.log(unit));
  const power = 10 ** Math.floor(Math.log10(value / size));
  return [1, 2, 5, 10].map((step) => step * power * size).find((step) => step >= value) ?? value;
}

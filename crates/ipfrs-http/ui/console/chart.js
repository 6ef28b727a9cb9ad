// Charts of values over time, drawn with SVG.

import { h, svg } from "../dom.js";

/** Lengths of the time axis, in seconds. A chart uses the first that its points fit into. */
const SPANS = [60, 180, 360];
const LONGEST_SPAN = SPANS[SPANS.length - 1];
const WIDTH = 600;
const HEIGHT = 140;
/** Space above the top of the scale, and below 0, for the width of the lines. */
const EDGE = 2;

/** @typedef {{ time: number, values: number[] }} Point Values at a time in seconds since the epoch. */

/** Lines over time. Values that are not finite leave a gap. Pointer and arrow keys choose a time. */
export class Chart {
  /** @type {number | undefined} Index of the chosen point. */
  #chosen = undefined;

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
    /** @type {Point[]} */
    this.points = [];
    this.lines = names.map((_, index) => svg("path", { class: `line line-${index}` }));
    this.area = svg("path", { class: "area" });
    this.marker = svg("line", { class: "marker", y1: "0", y2: String(HEIGHT) });
    const grid = [0, 0.5, 1].map((share) => svg("line", { class: "grid", x2: String(WIDTH), y1: String(height(share)), y2: String(height(share)) }));
    const plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...grid, this.area, this.marker, ...this.lines);
    // Values change every two seconds, which a screen reader must not announce.
    this.values = names.map((name, index) => h("output", { class: `line-${index}`, "aria-live": "off", "aria-label": `${title}: ${name}` }, "-"));
    this.legend = h("ul", { class: "legend" }, ...names.map((name, index) => h("li", {}, h("span", { class: `swatch line-${index}` }), `${name} `, this.values[index])));
    this.scale = [1, 0.5, 0].map(() => h("span"));
    this.tip = h("div", { class: "tip", hidden: true });
    this.plot = h("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `${title} over time: arrow keys show earlier values` }, plot, this.tip);
    this.axis = [h("span"), h("span", {}, "now")];
    this.element = h(
      "figure",
      { class: "chart" },
      h("figcaption", {}, title),
      h("div", { class: "drawing" }, h("div", { class: "scale", "aria-hidden": "true" }, ...this.scale), this.plot, h("div", { class: "axis", "aria-hidden": "true" }, ...this.axis)),
      this.legend,
    );
    this.plot.addEventListener("pointermove", (event) => this.#point(event));
    this.plot.addEventListener("keydown", (event) => this.#step(event));
    for (const kind of ["pointerleave", "blur"]) this.plot.addEventListener(kind, () => this.#choose(undefined));
  }

  /**
   * Adds a point.
   * @param {number} time Seconds since the epoch.
   * @param {number[]} values One for each line.
   */
  push(time, values) {
    this.points.push({ time, values });
    while (this.points[0].time < time - LONGEST_SPAN) {
      this.points.shift();
      if (this.#chosen !== undefined) this.#chosen = Math.max(this.#chosen - 1, 0);
    }
    this.draw();
  }

  /** @param {number | undefined} index */
  #choose(index) {
    this.#chosen = index;
    this.draw();
  }

  /** @param {PointerEvent} event */
  #point(event) {
    if (this.points.length === 0) return;
    const { left, width } = this.plot.getBoundingClientRect();
    const wanted = this.#start() + ((event.clientX - left) / width) * this.#span();
    const distances = this.points.map(({ time }) => Math.abs(time - wanted));
    this.#choose(distances.indexOf(Math.min(...distances)));
  }

  /** @param {KeyboardEvent} event */
  #step(event) {
    const last = this.points.length - 1;
    const now = this.#chosen ?? last;
    const steps = /** @type {Record<string, number | undefined>} */ ({ ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last });
    if (event.key === "Escape") this.#choose(undefined);
    else if (steps[event.key] === undefined || last < 0) return;
    else this.#choose(Math.min(Math.max(/** @type {number} */ (steps[event.key]), 0), last));
    event.preventDefault();
  }

  #last() {
    return this.points[this.points.length - 1]?.time ?? 0;
  }

  #span() {
    const age = this.#last() - (this.points[0]?.time ?? 0);
    return SPANS.find((span) => age <= span) ?? LONGEST_SPAN;
  }

  #start() {
    return this.#last() - this.#span();
  }

  draw() {
    // Charts of other views, and of windows that are not shown, are drawn when they are needed.
    if (!this.element.isConnected) return;
    const most = Math.max(...this.points.flatMap(({ values }) => values.filter(Number.isFinite)), 0);
    const scale = niceAbove(most, this.unit);
    const [start, span] = [this.#start(), this.#span()];
    const x = (/** @type {number} */ time) => ((time - start) / span) * WIDTH;
    for (const [line, path] of this.lines.entries()) {
      let isOpen = false;
      const steps = this.points.map(({ time, values }) => {
        const value = values[line];
        if (!Number.isFinite(value)) {
          isOpen = false;
          return "";
        }
        // The short line makes a point visible that has no neighbours.
        const step = `${isOpen ? "L" : "M"}${x(time).toFixed(1)} ${height(value / scale).toFixed(1)}${isOpen ? "" : "h.1"}`;
        isOpen = true;
        return step;
      });
      path.setAttribute("d", steps.join(""));
    }
    this.area.setAttribute("d", areaBelow(this.points, x, scale));
    for (const [index, share] of [1, 0.5, 0].entries()) this.scale[index].textContent = this.format(share * scale);
    this.axis[0].textContent = `${span / 60} min ago`;
    const shown = this.points[this.#chosen ?? this.points.length - 1];
    for (const [line, output] of this.values.entries()) output.textContent = shown ? this.format(shown.values[line]) : "-";
    this.#mark(x);
  }

  /** Shows the chosen time. @param {(time: number) => number} x */
  #mark(x) {
    const point = this.#chosen === undefined ? undefined : this.points[this.#chosen];
    this.marker.classList.toggle("shown", point !== undefined);
    this.tip.hidden = point === undefined;
    if (!point) return;
    const place = x(point.time);
    this.marker.setAttribute("x1", String(place));
    this.marker.setAttribute("x2", String(place));
    const rows = this.names.map((name, line) => h("div", {}, h("span", { class: `swatch line-${line}` }), `${name} `, h("b", {}, this.format(point.values[line]))));
    this.tip.replaceChildren(h("time", {}, new Date(point.time * 1000).toLocaleTimeString()), ...rows);
    this.tip.style.left = `${(place / WIDTH) * 100}%`;
    this.tip.classList.toggle("left", place > WIDTH / 2);
  }
}

/** Height in the drawing of a share of the scale. @param {number} share */
function height(share) {
  return HEIGHT - EDGE - share * (HEIGHT - 2 * EDGE);
}

/**
 * Area below the first line, without its gaps.
 * @param {Point[]} points
 * @param {(time: number) => number} x
 * @param {number} scale
 */
function areaBelow(points, x, scale) {
  const bottom = height(0).toFixed(1);
  const parts = [];
  let last = "";
  for (const { time, values } of points) {
    if (Number.isFinite(values[0])) {
      const place = x(time).toFixed(1);
      parts.push(`${last === "" ? `M${place} ${bottom}` : ""}L${place} ${height(values[0] / scale).toFixed(1)}`);
      last = place;
    } else if (last !== "") {
      parts.push(`L${last} ${bottom}Z`);
      last = "";
    }
  }
  if (last !== "") parts.push(`L${last} ${bottom}Z`);
  return parts.join("");
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
  if (!(value > 0)) return unit === 1024 ? 1024 : 1;
  const size = value < 1 ? 1 : unit ** Math.floor(Math.log(value) / Math.log(unit));
  const power = 10 ** Math.floor(Math.log10(value / size));
  return [1, 2, 5, 10].map((step) => step * power * size).find((step) => step >= value) ?? value;
}

//! SVG charts of lines over a common axis, readable on light and dark pages, without scripts or embedded fonts.

mod axis;

use std::fmt::Arguments;

use serde::Deserialize;

use crate::plot::axis::Scale;

/// A chart of a bench target: `Chart` of the crate `ipfrs-benches`.
#[derive(Deserialize)]
pub(crate) struct Chart {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
}

#[derive(Deserialize)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) is_logarithmic: bool,
    pub(crate) is_bytes: bool,
}

#[derive(Deserialize)]
pub(crate) struct Line {
    name: String,
    color: usize,
    is_dashed: bool,
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    x: f64,
    y: f64,
    least: f64,
    most: f64,
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 716.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 352.0;
/// Top of the legend, which has two columns below the axis.
const LEGEND_TOP: f64 = 426.0;
const LEGEND_ROW: f64 = 22.0;
/// Line colours on light and on dark backgrounds.
const COLORS: [(&str, &str); 6] = [
    ("#0969da", "#58a6ff"),
    ("#bc4c00", "#f0883e"),
    ("#1a7f37", "#3fb950"),
    ("#8250df", "#bc8cff"),
    ("#cf222e", "#ff7b72"),
    ("#6e7781", "#a0a8b0"),
];

impl Chart {
    /// Returns the chart as SVG. `circumstances` describes the measurement in the metadata of the image.
    pub(crate) fn svg(&self, circumstances: &str) -> String {
        let height = LEGEND_TOP + LEGEND_ROW * self.lines.len().div_ceil(2) as f64;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n{}\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n",
            escaped(&self.title),
            escaped(circumstances),
            style()
        );
        text(&mut out, WIDTH / 2.0, 28.0, "title middle", &self.title);
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Scale::new(&self.x, points().map(|point| point.x));
        let y = Scale::new(&self.y, points().flat_map(|point| [point.least, point.y, point.most]));
        let canvas = Canvas { x, y };
        canvas.axes(&mut out, self);
        for line in &self.lines {
            canvas.line(&mut out, line);
        }
        self.legend(&mut out);
        out.push_str("</svg>\n");
        out
    }

    fn legend(&self, out: &mut String) {
        for (index, line) in self.lines.iter().enumerate() {
            let left = if index % 2 == 0 { LEFT } else { f64::midpoint(LEFT, RIGHT) };
            let top = LEGEND_TOP + LEGEND_ROW * (index / 2) as f64;
            put(out, format_args!("<path class=\"{}\" d=\"M{left} {}h32\"/>", line.class(), top - 4.0));
            put(
                out,
                format_args!(
                    "<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"3.5\"/>",
                    line.color(),
                    left + 16.0,
                    top - 4.0
                ),
            );
            text(out, left + 42.0, top, "", &line.name);
        }
    }
}

impl Line {
    fn color(&self) -> String {
        format!("c{}", self.color % COLORS.len())
    }

    fn class(&self) -> String {
        format!("line {}{}", self.color(), if self.is_dashed { " dashed" } else { "" })
    }
}

/// Mapping from numbers to coordinates in the image.
struct Canvas {
    x: Scale,
    y: Scale,
}

impl Canvas {
    fn left(&self, x: f64) -> f64 {
        LEFT + self.x.place(x) * (RIGHT - LEFT)
    }

    fn top(&self, y: f64) -> f64 {
        BOTTOM - self.y.place(y) * (BOTTOM - TOP)
    }

    fn axes(&self, out: &mut String, chart: &Chart) {
        for tick in &self.x.ticks {
            let left = self.left(tick.at);
            put(out, format_args!("<path class=\"grid\" d=\"M{left:.1} {TOP}V{BOTTOM}\"/>"));
            text(out, left, BOTTOM + 20.0, "middle", &tick.label);
        }
        for tick in &self.y.ticks {
            let top = self.top(tick.at);
            put(out, format_args!("<path class=\"grid\" d=\"M{LEFT} {top:.1}H{RIGHT}\"/>"));
            text(out, LEFT - 8.0, top + 4.0, "end", &tick.label);
        }
        put(out, format_args!("<path class=\"axis\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>"));
        text(out, f64::midpoint(LEFT, RIGHT), BOTTOM + 44.0, "middle", &chart.x.label);
        let middle = f64::midpoint(TOP, BOTTOM);
        put(out, format_args!("<g transform=\"rotate(-90 20 {middle})\">"));
        text(out, 20.0, middle, "middle", &chart.y.label);
        put(out, format_args!("</g>"));
    }

    /// Draws a line through the medians, and the range from the smallest to the largest figure at each point.
    fn line(&self, out: &mut String, line: &Line) {
        let places = line.points.iter().map(|point| format!("{:.1} {:.1}", self.left(point.x), self.top(point.y)));
        let path = places.collect::<Vec<_>>().join("L");
        put(out, format_args!("<path class=\"{}\" d=\"M{path}\"/>", line.class()));
        for point in &line.points {
            let (color, left) = (line.color(), self.left(point.x));
            let (low, high) = (self.top(point.least), self.top(point.most));
            put(out, format_args!("<path class=\"spread {color}\" d=\"M{left:.1} {low:.1}V{high:.1}\"/>"));
            put(
                out,
                format_args!("<circle class=\"{color}\" cx=\"{left:.1}\" cy=\"{:.1}\" r=\"3.5\"/>", self.top(point.y)),
            );
        }
    }
}

fn put(out: &mut String, element: Arguments<'_>) {
    out.push_str(&element.to_string());
    out.push('\n');
}

fn text(out: &mut String, left: f64, top: f64, class: &str, text: &str) {
    put(out, format_args!("<text class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\">{}</text>", escaped(text)));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns the style sheet. The image has its own background, because a page may be light although the system theme
/// is dark.
fn style() -> String {
    let colors = |pick: fn(&(&'static str, &'static str)) -> &'static str| {
        let rules = COLORS.iter().enumerate().map(|(index, pair)| {
            let color = pick(pair);
            format!(".c{index}{{stroke:{color};fill:{color}}}")
        });
        rules.collect::<String>()
    };
    format!(
        "<style>\
         text{{font:13px system-ui,sans-serif;fill:#24292f}}.title{{font-size:15px;font-weight:600}}\
         .middle{{text-anchor:middle}}.end{{text-anchor:end}}\
         .paper{{fill:#fff}}.grid{{stroke:#d8dee4}}.axis{{stroke:#57606a;fill:none}}{light}\
         .line{{fill:none;stroke-width:2}}.spread{{stroke-opacity:.5}}.dashed{{stroke-dasharray:6 4}}\
         @media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.paper{{fill:#0d1117}}.grid{{stroke:#30363d}}\
         .axis{{stroke:#8b949e}}{dark}.line{{fill:none}}}}</style>\n",
        light = colors(|pair| pair.0),
        dark = colors(|pair| pair.1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_svg_contains_lines_legend_and_units() {
        let chart = r#"{"name": "n", "title": "A < B", "x": {"label": "size", "is_logarithmic": true, "is_bytes": true},
            "y": {"label": "MB/s", "is_logarithmic": false, "is_bytes": false}, "lines": [
                {"name": "nginx", "color": 0, "is_dashed": false, "points": [
                    {"x": 1024, "y": 50, "least": 0, "most": 100}, {"x": 1048576, "y": 100, "least": 100, "most": 100}]},
                {"name": "ipfrs", "color": 7, "is_dashed": true, "points": []}]}"#;
        let svg = serde_json::from_str::<Chart>(chart).unwrap().svg("one machine & another");
        for part in [
            "<title>A &lt; B</title>",
            "<desc>one machine &amp; another</desc>",
            ">size</text>",
            ">MB/s</text>",
            ">1 MiB</text>",
            ">nginx</text>",
            ">ipfrs</text>",
            // From the middle of the left edge to the upper right corner.
            "d=\"M84.0 202.0L716.0 52.0\"",
            // From the smallest to the largest figure.
            "d=\"M84.0 352.0V52.0\"",
            "class=\"line c1 dashed\"",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }
}

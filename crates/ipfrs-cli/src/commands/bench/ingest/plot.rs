//! A chart of the results: bars on a logarithmic scale, readable on light and dark pages.

use std::fmt::Write;

use super::report::{Report, Row, short_rate, short_size};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 56.0;
const HEIGHT: f64 = 280.0;
/// Colours of the stores, in the order in which they appear.
const COLORS: [&str; 6] = ["#0969da", "#bc4c00", "#1a7f37", "#8250df", "#cf222e", "#6e7781"];
const STYLE: &str = "<style>text{font:12px sans-serif;fill:#1f2328}.paper{fill:#fff}.grid{stroke:#d0d7de}\
                     @media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}.grid{stroke:#30363d}}</style>";

/// Returns the chart as SVG.
pub(super) fn svg(report: &Report) -> String {
    let mut stores: Vec<&str> = Vec::new();
    let mut sizes: Vec<u64> = Vec::new();
    for row in &report.results {
        if !stores.contains(&row.store.as_str()) {
            stores.push(&row.store);
        }
        if !sizes.contains(&row.message_bytes) {
            sizes.push(row.message_bytes);
        }
    }
    let logarithms = || report.results.iter().map(|row| row.ops_per_second.max(1e-3).log10());
    let low = logarithms().fold(f64::INFINITY, f64::min).min(0.0).floor();
    let high = logarithms().fold(low + 1.0, f64::max).ceil();
    let y = |rate: f64| TOP + HEIGHT * (high - rate.max(1e-3).log10().clamp(low, high)) / (high - low);
    let height = TOP + HEIGHT + 48.0 + 20.0 * stores.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n{STYLE}\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    let title = format!("Bursts of {} messages per second, by message size and store", report.messages_per_burst);
    text(&mut out, WIDTH / 2.0, 28.0, "middle", &title);
    let mut power = low;
    while power <= high {
        let at = y(10_f64.powf(power));
        let _ =
            writeln!(out, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>", WIDTH - 16.0);
        text(&mut out, LEFT - 8.0, at + 4.0, "end", &short_rate(10_f64.powf(power)));
        power += 1.0;
    }
    let group = (WIDTH - LEFT - 24.0) / sizes.len().max(1) as f64;
    let bar = (group * 0.8 / stores.len().max(1) as f64).min(60.0);
    for (number, size) in sizes.iter().enumerate() {
        let begin = LEFT + group * number as f64 + (group - bar * stores.len() as f64) / 2.0;
        text(&mut out, LEFT + group * (number as f64 + 0.5), TOP + HEIGHT + 20.0, "middle", &short_size(*size));
        for row in report.results.iter().filter(|row| row.message_bytes == *size) {
            let index = stores.iter().position(|store| *store == row.store).unwrap_or(0);
            draw(&mut out, row, begin + bar * index as f64, bar * 0.9, COLORS[index % COLORS.len()], &y);
        }
    }
    for (index, store) in stores.iter().enumerate() {
        let (at, color) = (TOP + HEIGHT + 44.0 + 20.0 * index as f64, COLORS[index % COLORS.len()]);
        let _ =
            writeln!(out, "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{color}\"/>", at - 10.0);
        text(&mut out, LEFT + 20.0, at, "start", store);
    }
    out.push_str("</svg>\n");
    out
}

/// Draws a bar with its margin and its value.
fn draw(out: &mut String, row: &Row, x: f64, width: f64, color: &str, y: &impl Fn(f64) -> f64) {
    let (rate, bottom) = (row.ops_per_second, TOP + HEIGHT);
    let (top, middle) = (y(rate), x + width / 2.0);
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{color}\"/>",
        bottom - top
    );
    let margin = row.margin.unwrap_or(0.0);
    let (least, most) = (y(rate * (1.0 - margin).max(0.01)), y(rate * (1.0 + margin)));
    let _ = writeln!(
        out,
        "<line stroke=\"currentColor\" x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{least:.1}\" y2=\"{most:.1}\"/>"
    );
    text(out, middle, most - 4.0, "middle", &short_rate(rate));
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{escaped}</text>");
}

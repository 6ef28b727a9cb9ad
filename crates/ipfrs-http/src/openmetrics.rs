//! Metrics in the OpenMetrics text format, version 1.0.0
//! (<https://prometheus.io/docs/specs/om/open_metrics_spec/>), which has exemplars.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::ACCEPT;
use ipfrs_middleware::TraceContext;
use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An observation that belongs to a recorded trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exemplar {
    pub(crate) trace: TraceContext,
    pub(crate) value: f64,
    pub(crate) time: SystemTime,
}

/// Whether a client prefers OpenMetrics to the older text format. Without a weight for either, it does not.
pub(crate) fn is_preferred(headers: &HeaderMap) -> bool {
    let (mut open, mut text) = (0.0_f32, 0.0_f32);
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let weight = parts.find_map(|parameter| parameter.strip_prefix("q=")).and_then(|weight| weight.parse().ok());
        let weight = weight.unwrap_or(1.0);
        match media {
            "application/openmetrics-text" => open = open.max(weight),
            "text/plain" => text = text.max(weight),
            _ => {}
        }
    }
    open > text
}

/// Encodes metric families. `exemplars` returns the exemplars of a histogram's buckets, for its name and labels.
pub(crate) fn encode(
    families: &[MetricFamily],
    exemplars: impl Fn(&str, &[LabelPair]) -> Vec<Option<Exemplar>>,
) -> String {
    let mut text = String::with_capacity(32 * 1024);
    for family in families {
        let name = family.name();
        // The name of a counter lacks the suffix of its samples.
        let (name, kind) = match (family.get_field_type(), name.strip_suffix("_total")) {
            (MetricType::COUNTER, Some(base)) => (base, "counter"),
            (MetricType::GAUGE, _) => (name, "gauge"),
            (MetricType::HISTOGRAM, _) => (name, "histogram"),
            _ => (name, "unknown"),
        };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "# HELP {name} {}", escaped(family.help()));
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for metric in family.get_metric() {
            match family.get_field_type() {
                MetricType::HISTOGRAM => {
                    histogram(&mut text, name, metric, &exemplars(name, metric.get_label()));
                }
                MetricType::COUNTER if kind == "counter" => {
                    sample(&mut text, name, "_total", metric, metric.get_counter().get_value());
                }
                MetricType::COUNTER => sample(&mut text, name, "", metric, metric.get_counter().get_value()),
                _ => sample(&mut text, name, "", metric, metric.get_gauge().get_value()),
            }
        }
    }
    text.push_str("# EOF\n");
    text
}

fn sample(text: &mut String, name: &str, suffix: &str, metric: &Metric, value: f64) {
    let _ = write!(text, "{name}{suffix}");
    labels(text, metric.get_label(), None);
    let _ = writeln!(text, " {}", number(value));
}

fn histogram(text: &mut String, name: &str, metric: &Metric, exemplars: &[Option<Exemplar>]) {
    let histogram = metric.get_histogram();
    let (sum, count) = (histogram.get_sample_sum(), histogram.get_sample_count());
    let bounded = histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite());
    let buckets = bounded.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
    for (index, (bound, below)) in buckets.chain([(f64::INFINITY, count)]).enumerate() {
        let _ = write!(text, "{name}_bucket");
        labels(text, metric.get_label(), Some(&canonical(bound)));
        let _ = write!(text, " {below}");
        // A counted observation may be recorded before it is noted as an exemplar, never after.
        if let Some(Exemplar { trace, value, time }) = exemplars.get(index).copied().flatten() {
            let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let (trace, span) = (trace.trace_id(), trace.span_id());
            let _ = write!(text, " # {{trace_id=\"{trace}\",span_id=\"{span}\"}} {value} {seconds:.3}");
        }
        text.push('\n');
    }
    for (suffix, value) in [("_sum", number(sum)), ("_count", count.to_string())] {
        let _ = write!(text, "{name}{suffix}");
        labels(text, metric.get_label(), None);
        let _ = writeln!(text, " {value}");
    }
}

fn labels(text: &mut String, labels: &[LabelPair], bound: Option<&str>) {
    let pairs = labels.iter().map(|pair| (pair.name(), pair.value())).chain(bound.map(|bound| ("le", bound)));
    let mut separator = '{';
    for (name, value) in pairs {
        let _ = write!(text, "{separator}{name}=\"{}\"", escaped(value));
        separator = ',';
    }
    if separator == ',' {
        text.push('}');
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

fn number(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => value.to_string(),
    }
}

/// Returns the canonical form of a bound, which scrapers compare as text: with a fraction or an exponent.
fn canonical(bound: f64) -> String {
    if bound.is_infinite() {
        return number(bound);
    }
    let exponent = if bound == 0.0 { 0.0 } else { bound.abs().log10().floor() };
    if !(-4.0..6.0).contains(&exponent) {
        let (digits, exponent) =
            format!("{bound:e}").split_once('e').map_or_else(Default::default, |(digits, exponent)| {
                (digits.to_owned(), exponent.parse::<i32>().unwrap_or_default())
            });
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let text = bound.to_string();
    if text.contains('.') { text } else { format!("{text}.0") }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntGauge, Registry};

    use super::*;

    #[test]
    fn families_have_the_forms_of_the_specification() {
        let registry = Registry::new();
        let counter = IntCounter::new("a_events_total", "Events, \"quoted\"\nand more").unwrap();
        let gauge = IntGauge::new("b_size_bytes", "Size").unwrap();
        let options = HistogramOpts::new("c_seconds", "Time").buckets(vec![1e-5, 0.25, 1.0, 65_536.0, 16_777_216.0]);
        let histogram = HistogramVec::new(options, &["route"]).unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        registry.register(Box::new(gauge.clone())).unwrap();
        registry.register(Box::new(histogram.clone())).unwrap();
        counter.inc_by(3);
        gauge.set(-1);
        histogram.with_label_values(&["/a\"b"]).observe(0.5);
        let trace = TraceContext { trace_id: [0xab; 16], span_id: [1; 8], is_sampled: true };
        let exemplar = Exemplar { trace, value: 0.5, time: UNIX_EPOCH };
        let text = encode(&registry.gather(), |name, labels| {
            assert_eq!((name, labels[0].value()), ("c_seconds", "/a\"b"));
            vec![None, None, Some(exemplar)]
        });
        insta::assert_snapshot!(text);
    }

    #[test]
    fn format_follows_accept() {
        let prefers = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_str(accept).unwrap());
            is_preferred(&headers)
        };
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for accept in [prometheus, "application/openmetrics-text", "text/html, application/openmetrics-text; q=0.1"] {
            assert!(prefers(accept), "{accept}");
        }
        let both = "application/openmetrics-text;q=0.2,text/plain;q=0.3";
        for accept in ["*/*", "text/plain", both, "application/openmetrics-text;q=0", ""] {
            assert!(!prefers(accept), "{accept}");
        }
    }
}

//! Output of `bench http`.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::HumanCount;
use serde::Serialize;

use crate::load::{Load, Outcome, Span};

/// Upper bounds of the histogram rows in each power of ten. The steps are about equal on a logarithmic scale.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];
/// Width of the longest bar, in characters.
const BAR_WIDTH: u64 = 40;

/// Report of a run, printed as one JSON object with `--json`, and as text otherwise.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    url: String,
    paths: Vec<String>,
    connections: usize,
    streams: usize,
    http2: bool,
    /// Requests due per second. `None` in a closed loop.
    rate: Option<f64>,
    /// Ranges that were requested. `None` if whole files were requested.
    range: Option<Span>,
    interrupted: bool,
    elapsed_seconds: f64,
    requests: Requests,
    requests_per_second: f64,
    body_bytes: u64,
    bytes_per_second: f64,
    /// `None` if no response was complete.
    latency_seconds: Option<Latency>,
    histogram: Vec<Row>,
    statuses: BTreeMap<u16, u64>,
    /// Number of failed requests, by reason.
    errors: BTreeMap<&'static str, u64>,
    /// Responses whose body had the length given in `Content-Length`.
    length_checked: u64,
    /// Connections that replaced an earlier one.
    reopened: u64,
}

/// Number of requests by outcome.
#[derive(Debug, Serialize)]
struct Requests {
    /// Requests with a complete response, of any status.
    answered: u64,
    /// Requests with a complete response and a status below 400.
    succeeded: u64,
    failed: u64,
    /// Requests still in progress at the end.
    unfinished: u64,
    /// Requests that were due before the end but not sent.
    unsent: u64,
}

#[derive(Debug, Serialize)]
struct Latency {
    min: f64,
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    #[serde(rename = "p99.9")]
    p99_9: f64,
    max: f64,
}

/// Number of responses that took longer than the previous row's bound, and at most this row's bound.
#[derive(Debug, Serialize)]
struct Row {
    up_to_seconds: f64,
    count: u64,
}

impl Report {
    pub(super) fn new(url: &str, paths: Vec<String>, load: &Load, range: Option<Span>, outcome: &Outcome) -> Self {
        let tally = &outcome.tally;
        let per_second = |count: u64| match outcome.elapsed {
            Duration::ZERO => 0.0,
            elapsed => count as f64 / elapsed.as_secs_f64(),
        };
        Self {
            url: url.to_owned(),
            paths,
            connections: load.connections,
            streams: load.streams,
            http2: load.is_http2,
            rate: load.rate,
            range,
            interrupted: outcome.is_interrupted,
            elapsed_seconds: outcome.elapsed.as_secs_f64(),
            requests: Requests {
                answered: tally.answers(),
                succeeded: tally.successes(),
                failed: tally.failures(),
                unfinished: outcome.unfinished,
                unsent: outcome.unsent,
            },
            requests_per_second: per_second(tally.answers()),
            body_bytes: tally.body_bytes,
            bytes_per_second: per_second(tally.body_bytes),
            latency_seconds: Latency::of(&tally.latencies),
            histogram: rows(&tally.latencies),
            statuses: tally.statuses.clone(),
            errors: tally.faults.iter().map(|(fault, count)| (fault.name(), *count)).collect(),
            length_checked: tally.sized,
            reopened: outcome.reopened,
        }
    }

    /// Returns the lines of the text report.
    pub(super) fn lines(&self, load: &Load) -> Vec<String> {
        let mut lines = vec![self.head(load), String::new()];
        let count = |count: u64| HumanCount(count).to_string();
        let answered = self.requests.answered;
        let mut requests = format!("{} completed", count(answered));
        for (number, what) in [
            (self.requests.failed, "failed"),
            (self.requests.unfinished, "in progress at the end"),
            (self.requests.unsent, "due but not sent"),
        ] {
            if number > 0 {
                requests += &format!(", {} {what}", count(number));
            }
        }
        lines.push(format!("Requests    {requests}"));
        lines.push(format!(
            "Throughput  {:.1} requests/s, {:.2} MB/s of bodies ({} bytes)",
            self.requests_per_second,
            self.bytes_per_second / 1e6,
            count(self.body_bytes)
        ));
        let statuses: Vec<_> = self.statuses.iter().map(|(status, n)| format!("{status}: {}", count(*n))).collect();
        lines.push(format!("Statuses    {}", or_none(&statuses)));
        let errors: Vec<_> = self.errors.iter().map(|(name, n)| format!("{name}: {}", count(*n))).collect();
        lines.push(format!("Errors      {}", or_none(&errors)));
        lines.push(format!(
            "Lengths     {} of {} responses had the Content-Length that they declared",
            count(self.length_checked),
            count(answered)
        ));
        if self.reopened > 0 {
            lines.push(format!("Reopened    {} connections", count(self.reopened)));
        }
        if self.range.is_some() && self.statuses.contains_key(&200) {
            lines.push(
                "Note        responses with status 200 are whole files: the server does not serve ranges there"
                    .to_owned(),
            );
        }
        if let Some(latency) = &self.latency_seconds {
            lines.extend([String::new(), latency.line(self.rate.is_some()), String::new()]);
            lines.extend(self.bars());
        }
        lines
    }

    fn head(&self, load: &Load) -> String {
        let what = match self.paths.as_slice() {
            [path] => format!("{}{path}", self.url),
            paths => format!("{} paths of {}", paths.len(), self.url),
        };
        let connections = if self.connections == 1 { "connection" } else { "connections" };
        let version = match (self.http2, self.streams) {
            (false, _) => "HTTP/1.1".to_owned(),
            (true, 1) => "HTTP/2".to_owned(),
            (true, streams) => format!("HTTP/2 with {streams} streams each"),
        };
        let rate = self.rate.map_or_else(|| "closed loop".to_owned(), |rate| format!("{rate} requests/s due"));
        let warmup = match load.warmup {
            Duration::ZERO => String::new(),
            warmup => format!(" after {} of warm-up", time(warmup.as_secs_f64())),
        };
        let range = self.range.map_or_else(String::new, |range| format!("{} bytes of each, ", HumanCount(range.bytes)));
        format!(
            "{what}\n{range}{} {connections}, {version}, {rate}, {}{warmup}",
            HumanCount(self.connections as u64),
            time(self.elapsed_seconds)
        )
    }

    fn bars(&self) -> impl Iterator<Item = String> {
        let max_count = self.histogram.iter().map(|row| row.count).max().unwrap_or_default().max(1);
        let counts: Vec<_> = self.histogram.iter().map(|row| HumanCount(row.count).to_string()).collect();
        let width = counts.iter().map(String::len).max().unwrap_or_default();
        self.histogram.iter().zip(counts).map(move |(row, count)| {
            // Every nonzero count gets a bar of at least one character.
            let length = (row.count * BAR_WIDTH).div_ceil(max_count);
            let bar = "█".repeat(usize::try_from(length).unwrap_or_default());
            format!("{:>12}  {count:>width$}  {bar}", format!("≤ {}", time(row.up_to_seconds))).trim_end().to_owned()
        })
    }
}

impl Latency {
    fn of(latencies: &Histogram<u64>) -> Option<Self> {
        if latencies.is_empty() {
            return None;
        }
        let at = |quantile| seconds(latencies.value_at_quantile(quantile));
        Some(Self {
            min: seconds(latencies.min()),
            mean: latencies.mean() / 1e9,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: seconds(latencies.max()),
        })
    }

    fn line(&self, is_from_due: bool) -> String {
        let from = if is_from_due { " (measured from when requests were due)" } else { "" };
        let values = [
            ("mean", self.mean),
            ("p50", self.p50),
            ("p90", self.p90),
            ("p99", self.p99),
            ("p99.9", self.p99_9),
            ("max", self.max),
        ];
        let values: Vec<_> = values.iter().map(|(name, value)| format!("{name} {}", time(*value))).collect();
        format!("Latency     {}{from}", values.join(", "))
    }
}

/// Returns the counts between rounded latencies, from the shortest to the longest that occurred.
fn rows(latencies: &Histogram<u64>) -> Vec<Row> {
    let mut rows: Vec<(u64, u64)> = Vec::new();
    let mut bounds = (2..).flat_map(|power| STEPS.map(|step| step * 10_u64.saturating_pow(power))).peekable();
    for recorded in latencies.iter_recorded() {
        let value = recorded.value_iterated_to();
        // The bounds extend beyond an hour, the longest latency that is recorded.
        while let Some(bound) = bounds.next_if(|bound| *bound < value) {
            if rows.last().is_some_and(|(last, _)| *last < bound) {
                rows.push((bound, 0));
            }
        }
        let Some(bound) = bounds.peek() else { break };
        match rows.last_mut() {
            Some((last, count)) if last == bound => *count += recorded.count_at_value(),
            _ => rows.push((*bound, recorded.count_at_value())),
        }
    }
    rows.into_iter().map(|(bound, count)| Row { up_to_seconds: seconds(bound), count }).collect()
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Formats a time with three digits and a suitable unit.
fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 0.000_999_5 => (s * 1e6, "µs"),
        s if s < 0.999_5 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

fn or_none(parts: &[String]) -> String {
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

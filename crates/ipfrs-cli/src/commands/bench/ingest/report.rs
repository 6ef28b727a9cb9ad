//! The table of results.

use serde::Serialize;

use super::Samples;
use crate::args::BenchIngestArgs;

/// All results, printed as one JSON object with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) url: String,
    pub(super) messages_per_burst: u16,
    pub(super) bursts_in_flight: u16,
    pub(super) connections: u16,
    pub(super) results: Vec<Row>,
    #[serde(skip)]
    last: usize,
}

/// One measurement.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) message_bytes: u64,
    pub(super) store: String,
    /// Bursts per second.
    pub(super) ops_per_second: f64,
    /// Half the width of the 95 % confidence interval, as a share of the mean.
    pub(super) margin: Option<f64>,
    samples: usize,
    /// Ratio to the rate of `memory`.
    of_memory: Option<f64>,
    /// Ratio to the rate of `filesystem`.
    of_filesystem: Option<f64>,
}

impl Row {
    pub(super) fn new(message_bytes: u64, store: &str, samples: &Samples) -> Self {
        Self {
            message_bytes,
            store: store.to_owned(),
            ops_per_second: samples.rate(),
            margin: samples.margin(),
            samples: samples.count(),
            of_memory: None,
            of_filesystem: None,
        }
    }
}

impl Report {
    pub(super) fn new(url: String, args: &BenchIngestArgs) -> Self {
        let (messages_per_burst, bursts_in_flight, connections) = (args.messages, args.in_flight, args.connections);
        Self { url, messages_per_burst, bursts_in_flight, connections, results: Vec::new(), last: 0 }
    }

    /// Adds the measurements of one size.
    pub(super) fn add(&mut self, mut rows: Vec<Row>) {
        let rate = |store: &str| rows.iter().find(|row| row.store == store).map(|row| row.ops_per_second);
        let (memory, filesystem) = (rate("memory"), rate("filesystem"));
        for row in &mut rows {
            row.of_memory = memory.filter(|_| row.store != "memory").map(|rate| row.ops_per_second / rate);
            row.of_filesystem = filesystem.filter(|_| row.store != "filesystem").map(|rate| row.ops_per_second / rate);
        }
        self.last = self.results.len();
        self.results.extend(rows);
    }

    pub(super) fn head(&self) -> Vec<String> {
        let (messages, connections, in_flight) = (self.messages_per_burst, self.connections, self.bursts_in_flight);
        vec![
            format!("{} with {connections} connection(s), {in_flight} burst(s) of {messages} in flight", self.url),
            format!(
                "{:>9}  {:<12}  {:>10}  {:>8}  {:>5}  {:>9}  {:>13}",
                "message", "store", "bursts/s", "margin", "runs", "of memory", "of filesystem"
            ),
        ]
    }

    /// Returns the lines of the size that was added last.
    pub(super) fn last_lines(&self) -> Vec<String> {
        let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let line = |row: &Row| {
            let margin = row.margin.map_or_else(|| "-".to_owned(), |margin| format!("±{:.1}%", margin * 100.0));
            let (size, rate) = (short_size(row.message_bytes), short_rate(row.ops_per_second));
            let (memory, filesystem) = (ratio(row.of_memory), ratio(row.of_filesystem));
            let (store, samples) = (&row.store, row.samples);
            format!("{size:>9}  {store:<12}  {rate:>10}  {margin:>8}  {samples:>5}  {memory:>9}  {filesystem:>13}")
        };
        self.results[self.last..].iter().map(line).collect()
    }
}

/// Returns a size as `10 MiB`.
pub(super) fn short_size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Returns a rate with three significant digits.
pub(super) fn short_rate(rate: f64) -> String {
    match rate {
        _ if rate >= 100.0 => format!("{rate:.0}"),
        _ if rate >= 10.0 => format!("{rate:.1}"),
        _ => format!("{rate:.2}"),
    }
}

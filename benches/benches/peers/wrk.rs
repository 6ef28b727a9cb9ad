//! The load generator wrk.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::site::Target;

/// Result of one run. Latencies are in milliseconds.
pub(crate) struct Run {
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Number of connections and requests that failed or took more than two seconds.
    pub(crate) errors: f64,
}

pub(crate) fn run(target: &Target, connections: u32, seconds: u64) -> Result<Run> {
    run_url(&format!("http://{}{}", target.address, target.path), connections, seconds)
}

pub(crate) fn run_url(url: &str, connections: u32, seconds: u64) -> Result<Run> {
    let arguments = ["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--latency", url];
    let output = Command::new("wrk").args(arguments).stdin(Stdio::null()).output().context("wrk cannot be run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).with_context(|| format!("wrk printed: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn parse(text: &str) -> Result<Run> {
    let after = |label: &str| text.lines().find_map(|line| line.trim_start().strip_prefix(label)).map(str::trim);
    ensure!(after("Non-2xx or 3xx responses:").is_none(), "requests were refused");
    let latency = |label| after(label).and_then(milliseconds).with_context(|| format!("no latency at {label}"));
    let per_second = after("Requests/sec:").and_then(|rate| rate.parse().ok()).context("no rate")?;
    // `Socket errors: connect 0, read 0, write 0, timeout 3`
    let errors =
        after("Socket errors:").unwrap_or_default().split([' ', ',']).filter_map(|word| word.parse::<u32>().ok());
    Ok(Run { per_second, p50_ms: latency("50%")?, p99_ms: latency("99%")?, errors: f64::from(errors.sum::<u32>()) })
}

fn milliseconds(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 4] = [("us", 0.001), ("ms", 1.0), ("s", 1_000.0), ("m", 60_000.0)];
    let (digits, factor) = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    digits.parse::<f64>().ok().map(|value| value * factor)
}

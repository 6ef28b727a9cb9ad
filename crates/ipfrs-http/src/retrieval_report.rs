//! Reports of retrievals: the sources that were tried, as text and JSON.

use std::fmt::Write;
use std::time::Duration;

use ipfrs_node::Attempt;
use ipfrs_rpc::types::RetrievalAttempt;
use serde_json::Value;

/// Returns a line for each attempt; empty without attempts.
pub(crate) fn text(attempts: &[Attempt]) -> String {
    let mut text = String::new();
    for attempt in attempts {
        let (kind, outcome) = (attempt.source.name(), attempt.outcome.name());
        let (at, took) = (millis(attempt.start), millis(attempt.duration));
        let (request, address) = (&attempt.request, &attempt.address);
        let detail = if attempt.detail.is_empty() { String::new() } else { format!(": {}", attempt.detail) };
        let (bytes, blocks) = (attempt.bytes, attempt.blocks);
        let counts = format!("{took} ms, {bytes} bytes, {blocks} blocks");
        let _written = writeln!(text, "{at:>6} ms  {kind} {address}  {request}  {outcome}{detail} ({counts})");
    }
    text
}

/// Returns the attempts as an array of objects.
pub(crate) fn json(attempts: &[Attempt]) -> Value {
    serde_json::to_value(self::attempts(attempts, false)).unwrap_or_default()
}

/// Returns the attempts as JSON types, with the URLs of the sources for operators.
pub(crate) fn attempts(attempts: &[Attempt], for_operator: bool) -> Vec<RetrievalAttempt> {
    attempts.iter().map(|attempt| self::attempt(attempt, for_operator)).collect()
}

fn attempt(attempt: &Attempt, for_operator: bool) -> RetrievalAttempt {
    let url = attempt.url.as_ref().filter(|_| for_operator);
    RetrievalAttempt {
        source: attempt.source.name().to_owned(),
        address: url.unwrap_or(&attempt.address).clone(),
        request: attempt.request.clone(),
        outcome: attempt.outcome.name().to_owned(),
        detail: attempt.detail.clone(),
        status: attempt.status,
        start_ms: millis(attempt.start),
        first_byte_ms: attempt.first_byte.map(millis),
        duration_ms: millis(attempt.duration),
        bytes: attempt.bytes,
        blocks: attempt.blocks,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

//! HTTP sources: their health, speed and order.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::turns::Turns;
use parking_lot::Mutex;
use reqwest::{Client, Url};
use tokio::time::Instant;

use crate::attempt::{Outcome, SourceKind};

/// Maximum number of concurrent requests to one source.
const MAX_REQUESTS: usize = 64;
/// Maximum number of sources whose health is remembered. Configured gateways are always remembered.
const MAX_SOURCES: usize = 4_096;
/// Number of absent responses in a row after which a provider comes after all others. It is not excluded, because
/// anyone can ask for content that does not exist.
const MAX_ABSENT: u32 = 100;
/// Seconds that are added to the cost of such a provider.
const ABSENT_COST: f64 = 10.0;
/// How long a source that delivered invalid bytes, or failed repeatedly, is not used.
const EXCLUSION: Duration = Duration::from_secs(600);
/// The same for a configured gateway at first. It doubles each time.
const FIRST_EXCLUSION: Duration = Duration::from_secs(10);
const MAX_EXCLUSION_EXPONENT: u32 = 6;
/// How long no CAR is requested from a source that responds with something else. It doubles each time.
const CAR_PAUSE: Duration = Duration::from_secs(60);
const MAX_CAR_EXPONENT: u32 = 6;
/// Number of refusals in a row that may each be about one request.
const CAR_REFUSALS: u32 = 3;
/// Default pause after a response that says the source is busy, and the longest that is respected.
const BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Weight of the latest measurement in moving averages.
const WEIGHT: f64 = 0.2;
/// Time to the first byte that is assumed before anything was measured, in seconds.
const ASSUMED_FIRST_BYTE: f64 = 0.2;
/// Bytes per second that are assumed before anything was measured.
const ASSUMED_BANDWIDTH: f64 = 8e6;

/// A server that implements the trustless gateway specification.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) kind: SourceKind,
    pub(crate) url: Url,
    pub(crate) client: Client,
    /// Permits for requests to the source.
    pub(crate) requests: Turns<Option<IpAddr>>,
    health: Mutex<Health>,
}

#[derive(Debug, Clone, Default)]
struct Health {
    /// Moving average of the share of attempts that did not fail, from 0 to 1.
    success: Option<f64>,
    /// Moving averages of the time to the first byte, in seconds, of its deviation, and of bytes per second.
    first_byte: Option<(f64, f64)>,
    bandwidth: Option<f64>,
    absent_in_row: u32,
    busy_in_row: u32,
    failed_in_row: u32,
    paused_until: Option<Instant>,
    invalid_in_row: u32,
    cars: Cars,
}

/// How a source has responded to requests for CARs.
#[derive(Debug, Clone, Copy, Default)]
struct Cars {
    /// Whether the source has sent one.
    are_known: bool,
    /// Number of responses in a row that were none.
    refused: u32,
    /// Time until which none is requested.
    paused_until: Option<Instant>,
}

impl Source {
    fn new(kind: SourceKind, url: Url, client: Client) -> Self {
        Self { kind, url, client, requests: Turns::new(MAX_REQUESTS, 1), health: Mutex::default() }
    }

    /// Returns the time at which the source may be used; `None` if that is now.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.health.lock().paused_until.filter(|until| *until > Instant::now())
    }

    pub(crate) fn lacks_car(&self) -> bool {
        self.health.lock().cars.paused_until.is_some_and(|until| until > Instant::now())
    }

    /// Records that the source responded to a request for a CAR with something else. `is_clear` says whether that is
    /// about CARs in general: otherwise it must happen several times, and never to a source that has sent one.
    pub(crate) fn note_no_car(&self, is_clear: bool) {
        let cars = &mut self.health.lock().cars;
        cars.refused += 1;
        if is_clear || (cars.refused >= CAR_REFUSALS && !cars.are_known) {
            let exponent = cars.refused.saturating_sub(1).min(MAX_CAR_EXPONENT);
            cars.paused_until = Some(Instant::now() + CAR_PAUSE * (1 << exponent));
        }
    }

    /// Records that the source has sent a CAR.
    pub(crate) fn note_car(&self) {
        self.health.lock().cars = Cars { are_known: true, ..Cars::default() };
    }

    /// Returns the seconds that a small request is expected to take, for the order of sources. Configured gateways
    /// come first as long as they work.
    pub(crate) fn cost(&self) -> f64 {
        let health = self.health.lock();
        let first_byte = health.first_byte.map_or(ASSUMED_FIRST_BYTE, |(mean, _)| mean);
        let transfer = 1e6 / health.bandwidth.unwrap_or(ASSUMED_BANDWIDTH).max(1.0);
        let success = health.success.unwrap_or(1.0).max(0.01);
        let unknown = if self.kind == SourceKind::Gateway { 1.0 } else { 2.0 };
        let is_useless = self.kind != SourceKind::Gateway && health.absent_in_row >= MAX_ABSENT;
        unknown * (first_byte + transfer) / success + if is_useless { ABSENT_COST } else { 0.0 }
    }

    /// Returns the time after which a first byte is unusually late: about the 95th percentile.
    pub(crate) fn late_after(&self) -> Duration {
        let (mean, deviation) = self.health.lock().first_byte.unwrap_or((ASSUMED_FIRST_BYTE, ASSUMED_FIRST_BYTE));
        Duration::from_secs_f64((mean + 4.0 * deviation).clamp(0.05, 5.0))
    }

    /// Records the time to the first byte of a response.
    pub(crate) fn note_first_byte(&self, after: Duration) {
        let (after, mut health) = (after.as_secs_f64(), self.health.lock());
        health.first_byte = Some(match health.first_byte {
            None => (after, after / 2.0),
            Some((mean, deviation)) => {
                (mean + WEIGHT * (after - mean), deviation + WEIGHT * ((after - mean).abs() - deviation))
            }
        });
    }

    /// Records the speed of a transfer that was long enough to tell.
    pub(crate) fn note_transfer(&self, bytes: u64, duration: Duration) {
        if bytes < 64 * 1024 {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "an average needs no exact bytes")]
        let rate = bytes as f64 / duration.as_secs_f64().max(1e-4);
        let mut health = self.health.lock();
        health.bandwidth = Some(health.bandwidth.map_or(rate, |mean| mean + WEIGHT * (rate - mean)));
    }

    /// Records an outcome. `retry_after` is the pause that the source requested.
    pub(crate) fn note(&self, outcome: Outcome, retry_after: Option<Duration>) {
        let (now, mut health) = (Instant::now(), self.health.lock());
        let success = match outcome {
            Outcome::Cancelled => return,
            // Not the fault of a configured gateway, and anyone can ask for such content.
            Outcome::Unusable if self.kind == SourceKind::Gateway => return,
            Outcome::Delivered | Outcome::Absent | Outcome::Unusable => 1.0,
            Outcome::Busy | Outcome::Failed | Outcome::Invalid | Outcome::Slow => 0.0,
        };
        let mean = health.success.unwrap_or(1.0);
        health.success = Some(mean + WEIGHT * (success - mean));
        let pause = match outcome {
            Outcome::Cancelled | Outcome::Delivered => {
                (health.absent_in_row, health.busy_in_row, health.failed_in_row) = (0, 0, 0);
                health.invalid_in_row = 0;
                return;
            }
            // Others could send anything too large, so it counts like no content.
            Outcome::Absent | Outcome::Unusable => {
                (health.busy_in_row, health.failed_in_row) = (0, 0);
                health.absent_in_row = health.absent_in_row.saturating_add(1);
                None
            }
            Outcome::Busy => {
                health.busy_in_row += 1;
                let requested = retry_after.unwrap_or(BACKOFF).clamp(Duration::from_millis(100), MAX_BACKOFF);
                // A configured gateway is asked again when it wants: it may be the only source.
                let is_left = health.busy_in_row > 1 && self.kind != SourceKind::Gateway;
                Some(if is_left { MAX_BACKOFF } else { requested })
            }
            // A gateway of the configuration may search for content in vain, while it delivers the rest.
            Outcome::Slow if self.kind == SourceKind::Gateway => None,
            Outcome::Failed | Outcome::Slow => {
                health.failed_in_row += 1;
                let exponent = health.failed_in_row.saturating_sub(2).min(6);
                (health.failed_in_row > 1).then(|| BACKOFF * (1 << exponent))
            }
            Outcome::Invalid => {
                health.invalid_in_row += 1;
                // A configured gateway may be the only source, and its disk or a proxy may have failed for a moment.
                let exponent = health.invalid_in_row.saturating_sub(1).min(MAX_EXCLUSION_EXPONENT);
                let pause = FIRST_EXCLUSION * (1 << exponent);
                Some(if self.kind == SourceKind::Gateway { pause.min(EXCLUSION) } else { EXCLUSION })
            }
        };
        if let Some(pause) = pause {
            health.paused_until = Some(now + pause);
        }
    }
}

/// All known sources, by URL. Their health outlives the sessions.
#[derive(Debug)]
pub(crate) struct Sources {
    gateways: Vec<Arc<Source>>,
    others: Mutex<HashMap<String, Arc<Source>>>,
    /// Client for sources that routers and clients name.
    client: Client,
}

impl Sources {
    pub(crate) fn new(gateways: Vec<Url>, trusted: &Client, client: Client) -> Self {
        let gateway = |url| Arc::new(Source::new(SourceKind::Gateway, url, trusted.clone()));
        Self { gateways: gateways.into_iter().map(gateway).collect(), others: Mutex::default(), client }
    }

    pub(crate) fn gateways(&self) -> &[Arc<Source>] {
        &self.gateways
    }

    /// Returns the source with this URL, which a router or a client named.
    pub(crate) fn provider(&self, url: Url) -> Arc<Source> {
        if let Some(gateway) = self.gateways.iter().find(|gateway| gateway.url == url) {
            return Arc::clone(gateway);
        }
        let mut others = self.others.lock();
        if others.len() >= MAX_SOURCES {
            // Sources in use stay, and those whose exclusion would otherwise be forgotten.
            others.retain(|_, source| Arc::strong_count(source) > 1 || source.paused_until().is_some());
            if others.len() >= MAX_SOURCES {
                others.clear();
            }
        }
        let new = || Arc::new(Source::new(SourceKind::Provider, url.clone(), self.client.clone()));
        Arc::clone(others.entry(url.as_str().to_owned()).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_that_does_not_exist_puts_a_provider_last_and_excludes_none() {
        let source = |kind| Source::new(kind, Url::parse("http://192.0.2.1").unwrap(), Client::new());
        let (provider, gateway) = (source(SourceKind::Provider), source(SourceKind::Gateway));
        for source in [&provider, &gateway] {
            (0..MAX_ABSENT).for_each(|_| source.note(Outcome::Absent, None));
            assert!(source.paused_until().is_none());
        }
        assert!(provider.cost() > ABSENT_COST && gateway.cost() < ABSENT_COST);
        provider.note(Outcome::Delivered, None);
        assert!(provider.cost() < ABSENT_COST);
        provider.note(Outcome::Invalid, None);
        assert!(provider.paused_until().is_some());
    }
}

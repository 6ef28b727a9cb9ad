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
/// Number of CARs in a row that ended early, after which blocks are requested singly.
const BROKEN_CARS: u32 = 3;
/// Longest pause of a configured gateway after failures: it may be the only source.
const MAX_GATEWAY_PAUSE: Duration = Duration::from_secs(4);
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
    /// Time of the last failure that was counted. Attempts that were under way at that time may have failed for the
    /// same reason, such as a restart.
    failed_at: Option<Instant>,
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
    /// Number of CARs in a row that ended early, and the time of the last one. Others may have ended for the same
    /// reason.
    broken: u32,
    broken_at: Option<Instant>,
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

    /// Records that a CAR which was requested at `began` ended early. The source may still deliver single blocks.
    pub(crate) fn note_broken_car(&self, began: Instant) {
        let (now, mut health) = (Instant::now(), self.health.lock());
        health.note_success(0.0);
        let cars = &mut health.cars;
        if cars.broken_at.is_some_and(|at| began <= at) {
            return;
        }
        (cars.broken, cars.broken_at) = (cars.broken + 1, Some(now));
        if let Some(more) = cars.broken.checked_sub(BROKEN_CARS) {
            cars.paused_until = Some(now + CAR_PAUSE * (1 << more.min(MAX_CAR_EXPONENT)));
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

    /// Records the outcome of an attempt that began at `began`. `retry_after` is the pause that the source requested.
    pub(crate) fn note(&self, outcome: Outcome, began: Instant, retry_after: Option<Duration>) {
        let (now, mut health) = (Instant::now(), self.health.lock());
        let success = match outcome {
            Outcome::Cancelled => return,
            // Not the fault of a configured gateway, and anyone can ask for such content.
            Outcome::Unusable if self.kind == SourceKind::Gateway => return,
            Outcome::Delivered | Outcome::Absent | Outcome::Unusable => 1.0,
            Outcome::Busy | Outcome::Failed | Outcome::Invalid | Outcome::Slow => 0.0,
        };
        health.note_success(success);
        match outcome {
            Outcome::Cancelled | Outcome::Delivered => {
                (health.absent_in_row, health.busy_in_row, health.failed_in_row) = (0, 0, 0);
                health.invalid_in_row = 0;
            }
            // Others could send anything too large, so it counts like no content.
            Outcome::Absent | Outcome::Unusable => {
                (health.busy_in_row, health.failed_in_row) = (0, 0);
                health.absent_in_row = health.absent_in_row.saturating_add(1);
            }
            // A gateway of the configuration may search for content in vain, while it delivers the rest.
            Outcome::Slow if self.kind == SourceKind::Gateway => {}
            Outcome::Busy | Outcome::Failed | Outcome::Slow | Outcome::Invalid => {
                let is_new = health.failed_at.is_none_or(|at| began > at);
                if is_new {
                    health.failed_at = Some(now);
                }
                let pause = health.pause_after(outcome, self.kind, is_new, retry_after);
                health.paused_until = health.paused_until.max(pause.map(|pause| now + pause));
            }
        }
    }
}

impl Health {
    fn note_success(&mut self, success: f64) {
        let mean = self.success.unwrap_or(1.0);
        self.success = Some(mean + WEIGHT * (success - mean));
    }

    /// Returns the pause after a failure, which counts as a further one in a row if it `is_new`.
    fn pause_after(
        &mut self,
        outcome: Outcome,
        kind: SourceKind,
        is_new: bool,
        retry_after: Option<Duration>,
    ) -> Option<Duration> {
        let (is_gateway, more) = (kind == SourceKind::Gateway, u32::from(is_new));
        match outcome {
            Outcome::Busy => {
                self.busy_in_row += more;
                let requested = retry_after.unwrap_or(BACKOFF).clamp(Duration::from_millis(100), MAX_BACKOFF);
                // A configured gateway is asked again when it wants: it may be the only source.
                let is_left = self.busy_in_row > 1 && !is_gateway;
                Some(if is_left { MAX_BACKOFF } else { requested })
            }
            Outcome::Invalid => {
                self.invalid_in_row += more;
                // A configured gateway may be the only source, and its disk or a proxy may have failed for a moment.
                let exponent = self.invalid_in_row.saturating_sub(1).min(MAX_EXCLUSION_EXPONENT);
                let pause = FIRST_EXCLUSION * (1 << exponent);
                Some(if is_gateway { pause.min(EXCLUSION) } else { EXCLUSION })
            }
            _ => {
                self.failed_in_row += more;
                let exponent = self.failed_in_row.saturating_sub(2).min(6);
                let pause = (is_new && self.failed_in_row > 1).then(|| BACKOFF * (1 << exponent))?;
                Some(if is_gateway { pause.min(MAX_GATEWAY_PAUSE) } else { pause })
            }
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

    fn source(kind: SourceKind) -> Source {
        Source::new(kind, Url::parse("http://192.0.2.1").unwrap(), Client::new())
    }

    fn pause(source: &Source) -> Duration {
        source.paused_until().map_or(Duration::ZERO, |until| until.duration_since(Instant::now()))
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_failures_count_once_and_gateways_pause_briefly() {
        let (provider, gateway) = (source(SourceKind::Provider), source(SourceKind::Gateway));
        for source in [&provider, &gateway] {
            let began = Instant::now();
            tokio::time::advance(Duration::from_secs(1)).await;
            (0..10).for_each(|_| source.note(Outcome::Failed, began, None));
            assert_eq!(pause(source), Duration::ZERO);
            let mut pauses = Vec::new();
            for _ in 0..4 {
                tokio::time::advance(Duration::from_secs(100)).await;
                let began = Instant::now();
                tokio::time::advance(Duration::from_secs(1)).await;
                (0..10).for_each(|_| source.note(Outcome::Failed, began, None));
                pauses.push(pause(source).as_secs());
            }
            assert_eq!(pauses, if source.kind == SourceKind::Gateway { [1, 2, 4, 4] } else { [1, 2, 4, 8] });
        }
        // A failure hides no wrong bytes that arrive with it.
        let (lying, began) = (source(SourceKind::Provider), Instant::now());
        lying.note(Outcome::Failed, began, None);
        lying.note(Outcome::Invalid, began, None);
        assert_eq!(pause(&lying), EXCLUSION);
    }

    #[tokio::test(start_paused = true)]
    async fn source_of_broken_cars_is_asked_for_blocks() {
        let source = source(SourceKind::Provider);
        let began = Instant::now();
        (0..10).for_each(|_| source.note_broken_car(began));
        assert!(!source.lacks_car());
        for number in 1..BROKEN_CARS {
            assert!(!source.lacks_car(), "{number}");
            tokio::time::advance(Duration::from_secs(1)).await;
            source.note_broken_car(Instant::now());
        }
        assert!(source.lacks_car() && source.paused_until().is_none());
        tokio::time::advance(CAR_PAUSE).await;
        assert!(!source.lacks_car());
    }

    #[test]
    fn content_that_does_not_exist_puts_a_provider_last_and_excludes_none() {
        let (provider, gateway) = (source(SourceKind::Provider), source(SourceKind::Gateway));
        for source in [&provider, &gateway] {
            (0..MAX_ABSENT).for_each(|_| source.note(Outcome::Absent, Instant::now(), None));
            assert!(source.paused_until().is_none());
        }
        assert!(provider.cost() > ABSENT_COST && gateway.cost() < ABSENT_COST);
        provider.note(Outcome::Delivered, Instant::now(), None);
        assert!(provider.cost() < ABSENT_COST);
        provider.note(Outcome::Invalid, Instant::now(), None);
        assert!(provider.paused_until().is_some());
    }
}

//! Rate limits of clients and callers (`[rate_limit]`), by the generic cell rate algorithm.
//!
//! A front-end [takes](RateLimiter::take) a token for each request, from the bucket of the caller if it has
//! authenticated, and else from that of the client. A body takes tokens for its bytes while it is sent, and waits for
//! them. Messages to `/ws` and `/ws/ingest`, and events, also wait (`messages`). The buckets are in a cache of fixed
//! size, so any number of addresses costs bounded memory: the bucket that was used least makes room, and its client
//! begins with a full one.

mod config;
mod messages;
mod paced;

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_core::Result;
use parking_lot::RwLock;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry};
use quick_cache::sync::Cache;
use tokio::time::Instant;

pub use config::RateLimitConfig;
pub use paced::Paced;

use crate::auth::Caller;
use crate::client::Client;
use crate::metrics::registered;
use crate::network::Network;
use crate::retry_after::limited;

/// Header fields of draft-ietf-httpapi-ratelimit-headers-10.
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The limiter. Clones share the buckets.
#[derive(Debug, Clone)]
pub struct RateLimiter(Option<Arc<Limiter>>);

#[derive(Debug)]
struct Limiter {
    /// The limits in force.
    shared: RwLock<Option<Arc<Shared>>>,
    /// Whether there are any, for requests that have no time to lock.
    is_enabled: AtomicBool,
    of_clients: PayerMetrics,
    of_callers: PayerMetrics,
}

/// Metrics of the requests that clients without credentials pay for, or callers with credentials.
#[derive(Debug)]
struct PayerMetrics {
    /// Number of refused requests.
    hits: IntCounter,
    /// Tokens that a request leaves in the bucket of its payer. There is no series for each payer, whose number is not
    /// bounded.
    tokens: Histogram,
}

/// Upper bounds of the buckets of `ipfrs_rate_limit_tokens_available`. A refused request counts as 0.
const TOKEN_BOUNDS: [f64; 9] = [0.0, 1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 65_536.0];

/// Limits with their buckets.
#[derive(Debug)]
struct Shared {
    /// Limits of a client without credentials.
    of_client: Limits,
    /// Limits of a caller with credentials.
    of_caller: Limits,
    exempt: Vec<Network>,
    buckets: Cache<u128, Arc<Bucket>>,
    hashers: [RandomState; 2],
    start: Instant,
}

/// Two limits: of requests and of bytes.
#[derive(Debug)]
struct Limits {
    requests: Rate,
    /// `None` without a limit.
    bytes: Option<Rate>,
    policy: HeaderValue,
}

/// A rate: a token each `interval` nanoseconds, and at most `burst` nanoseconds worth of them at once.
#[derive(Debug, Clone, Copy)]
struct Rate {
    interval: f64,
    burst: u64,
}

/// The tokens of a client or a caller: for requests and bytes the time at which all of them are there again, in
/// nanoseconds since the start of the limiter.
#[derive(Debug, Default)]
struct Bucket {
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// A request that was permitted. Its body is paced, and its response tells how many tokens are left.
#[derive(Debug, Clone)]
pub struct Ticket {
    shared: Arc<Shared>,
    bucket: Arc<Bucket>,
    is_of_caller: bool,
    /// Tokens that are left.
    remaining: u64,
    /// Seconds until all of them are there again.
    reset: u64,
}

impl RateLimiter {
    /// Creates the limiter.
    ///
    /// # Errors
    /// `config` is out of range, or the metrics are already registered.
    pub fn register(config: &RateLimitConfig, registry: &Registry) -> Result<Self> {
        config.validate()?;
        let help = "Requests refused by rate limits, by whose they are";
        let hits = IntCounterVec::new(Opts::new("ipfrs_rate_limit_hits_total", help), &["payer"]);
        let hits = registered(registry, hits)?;
        let help = "Tokens for requests that a request leaves in the bucket of its payer, by whose it is";
        let tokens = HistogramOpts::new("ipfrs_rate_limit_tokens_available", help).buckets(TOKEN_BOUNDS.to_vec());
        let tokens = registered(registry, HistogramVec::new(tokens, &["payer"]))?;
        let of = |payer: &str| PayerMetrics {
            hits: hits.with_label_values(&[payer]),
            tokens: tokens.with_label_values(&[payer]),
        };
        let this = Self(Some(Arc::new(Limiter {
            shared: RwLock::default(),
            is_enabled: AtomicBool::new(false),
            of_clients: of("client"),
            of_callers: of("caller"),
        })));
        this.set(config)?;
        Ok(this)
    }

    /// Replaces the limits. All clients begin with full buckets.
    ///
    /// # Errors
    /// `config` is out of range; the limits are as before.
    pub fn set(&self, config: &RateLimitConfig) -> Result<()> {
        config.validate()?;
        let Some(limiter) = &self.0 else { return Ok(()) };
        *limiter.shared.write() = config.enabled.then(|| Arc::new(Shared::new(config)));
        limiter.is_enabled.store(config.enabled, Ordering::Relaxed);
        Ok(())
    }

    /// Returns a limiter that limits nothing.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Returns whether there are limits.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.0.as_ref().is_some_and(|limiter| limiter.is_enabled.load(Ordering::Relaxed))
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        self.0.as_ref().and_then(|limiter| limiter.shared.read().clone())
    }

    /// Takes a token for a request of `client`, from the bucket of `caller` if it has authenticated. Returns `None` if
    /// the request is not limited.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`](ipfrs_core::ErrorKind) without a token; [`retry_after`](crate::retry_after) says when
    /// there will be one.
    pub fn take(&self, client: Client, caller: Option<&Caller>) -> Result<Option<Ticket>> {
        self.take_at(client, caller, Instant::now())
    }

    fn take_at(&self, client: Client, caller: Option<&Caller>, now: Instant) -> Result<Option<Ticket>> {
        let Some(limiter) = &self.0 else { return Ok(None) };
        let Some(shared) = self.shared() else { return Ok(None) };
        let Some((bucket, is_of_caller)) = shared.bucket(client, caller) else { return Ok(None) };
        let limits = shared.limits(is_of_caller);
        let metrics = if is_of_caller { &limiter.of_callers } else { &limiter.of_clients };
        let now = shared.nanoseconds(now);
        match limits.requests.take(&bucket.requests, now) {
            Ok(used) => {
                let remaining = (limits.requests.burst.saturating_sub(used) as f64 / limits.requests.interval) as u64;
                metrics.tokens.observe(remaining as f64);
                let reset = used.div_ceil(NANOSECONDS);
                Ok(Some(Ticket { shared: Arc::clone(&shared), bucket, is_of_caller, remaining, reset }))
            }
            Err(wait) => {
                metrics.hits.inc();
                metrics.tokens.observe(0.0);
                let who = if is_of_caller { "this key or token" } else { "this address" };
                let text = format!("too many requests from {who} (rate_limit.requests_per_second): slow down");
                Err(limited(text, wait))
            }
        }
    }

    /// Adds the policy to the response of a request that was refused, and when it permits the next one, from
    /// `Retry-After`. `caller` is as for [`take`](Self::take).
    pub fn describe_refusal(&self, caller: Option<&Caller>, headers: &mut HeaderMap) {
        if let Some(shared) = self.shared() {
            let is_of_caller = caller.and_then(Caller::principal).is_some();
            headers.insert(RATE_LIMIT_POLICY, shared.limits(is_of_caller).policy.clone());
            let wait = headers.get(RETRY_AFTER).and_then(|wait| wait.to_str().ok());
            let left = wait.and_then(|wait| HeaderValue::try_from(format!("\"requests\";r=0;t={wait}")).ok());
            headers.extend(left.map(|left| (RATE_LIMIT, left)));
        }
    }
}

const NANOSECONDS: u64 = 1_000_000_000;

/// Maximum debt of bytes, as the time in which they are paid, in nanoseconds.
const MAX_DEBT: u64 = 60 * NANOSECONDS;

impl Shared {
    fn new(config: &RateLimitConfig) -> Self {
        Self {
            of_client: Limits::new(config, 1),
            of_caller: Limits::new(config, config.caller_factor),
            exempt: config.exempt.clone(),
            buckets: Cache::new(config.max_clients),
            hashers: [RandomState::new(), RandomState::new()],
            start: Instant::now(),
        }
    }

    /// Returns a key that does not depend on what an attacker chooses.
    fn key(&self, of: impl Hash) -> u128 {
        let [high, low] = self.hashers.each_ref().map(|hasher| hasher.hash_one(&of));
        u128::from(high) << 64 | u128::from(low)
    }

    /// Returns the bucket that pays for `client`, and whether it is that of `caller`; `None` if they have no limits.
    fn bucket(&self, client: Client, caller: Option<&Caller>) -> Option<(Arc<Bucket>, bool)> {
        let caller = caller.and_then(Caller::principal);
        // Commands on this machine may do everything anyway.
        if caller.is_some_and(|caller| caller.is_local()) || client.is_in(&self.exempt) {
            return None;
        }
        let key = match caller {
            Some(caller) => self.key(caller.name()),
            None => self.key(client),
        };
        let bucket = self.buckets.get_or_insert_with(&key, || Ok::<_, ipfrs_core::Error>(Arc::default())).ok()?;
        Some((bucket, caller.is_some()))
    }

    fn limits(&self, is_of_caller: bool) -> &Limits {
        if is_of_caller { &self.of_caller } else { &self.of_client }
    }

    fn nanoseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_nanos() as u64
    }
}

impl Limits {
    fn new(config: &RateLimitConfig, factor: u64) -> Self {
        let per_second = config.requests_per_second.saturating_mul(factor);
        let burst = config.burst_requests.saturating_mul(factor);
        let requests = Rate::new(per_second, burst);
        let bytes = (config.bytes_per_second > 0).then(|| {
            Rate::new(config.bytes_per_second.saturating_mul(factor), config.burst_bytes.saturating_mul(factor))
        });
        let window = burst.div_ceil(per_second);
        let policy = HeaderValue::try_from(format!("\"requests\";q={burst};w={window}"));
        // Numbers and quotes always fit.
        Self { requests, bytes, policy: policy.unwrap_or(HeaderValue::from_static("\"requests\"")) }
    }
}

impl Rate {
    fn new(per_second: u64, burst: u64) -> Self {
        let interval = NANOSECONDS as f64 / per_second as f64;
        Self { interval, burst: (burst as f64 * interval) as u64 }
    }

    /// Takes a token. Returns the time until all tokens are there again, or until there is one.
    fn take(self, full: &AtomicU64, now: u64) -> std::result::Result<u64, Duration> {
        let interval = (self.interval as u64).max(1);
        let taken = full.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full| {
            let later = full.max(now).saturating_add(interval);
            (later <= now.saturating_add(self.burst.max(interval))).then_some(later)
        });
        match taken {
            Ok(before) => Ok(before.max(now).saturating_add(interval) - now),
            Err(full) => {
                let wait = full.max(now).saturating_add(interval) - now;
                Err(Duration::from_nanos(wait.saturating_sub(self.burst.max(interval))))
            }
        }
    }

    /// Returns the price of `count` tokens in nanoseconds.
    fn price(self, count: u64) -> u64 {
        (count as f64 * self.interval) as u64
    }

    /// Takes `count` tokens, even if there are fewer. Returns the time until there would have been enough, and the
    /// price. Beyond a minute a debt is forgiven, so that responses that end early do not lock out others of the same
    /// address for long.
    fn owe(self, full: &AtomicU64, count: u64, now: u64) -> (Duration, u64) {
        self.owe_price(full, self.price(count), now)
    }

    /// Takes tokens like [`owe`](Self::owe), by their price in nanoseconds.
    fn owe_price(self, full: &AtomicU64, cost: u64, now: u64) -> (Duration, u64) {
        let most = now.saturating_add(self.burst).saturating_add(MAX_DEBT);
        let owed = |full: u64| full.max(now).saturating_add(cost).min(most.max(full));
        let before = full.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full| Some(owed(full)));
        let (Ok(before) | Err(before)) = before;
        let after = owed(before);
        (Duration::from_nanos(after.saturating_sub(now.saturating_add(self.burst))), after - before.max(now))
    }
}

impl Ticket {
    /// Adds the policy, and what is left of it, to a response.
    pub fn describe(&self, headers: &mut HeaderMap) {
        let left = format!("\"requests\";r={};t={}", self.remaining, self.reset);
        headers.extend(HeaderValue::try_from(left).ok().map(|left| (RATE_LIMIT, left)));
        headers.insert(RATE_LIMIT_POLICY, self.shared.limits(self.is_of_caller).policy.clone());
    }

    /// Returns whether bytes are limited, so that a body must be [`Paced`].
    #[must_use]
    pub fn limits_bytes(&self) -> bool {
        self.rate().is_some()
    }

    /// Pays for bytes before they are sent. Returns how long to wait, and the price in nanoseconds.
    fn pay(&self, bytes: u64) -> (Duration, u64) {
        let Some(rate) = self.rate() else { return (Duration::ZERO, 0) };
        rate.owe(&self.bucket.bytes, bytes, self.shared.nanoseconds(Instant::now()))
    }

    /// Takes back the price of bytes that are not sent.
    fn refund(&self, price: u64) {
        let refunded = |full: u64| Some(full.saturating_sub(price));
        let _ = self.bucket.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, refunded);
    }

    /// Returns the number of bytes that may be sent at once.
    fn burst_bytes(&self) -> u64 {
        self.rate().map_or(u64::MAX, |rate| (rate.burst as f64 / rate.interval) as u64)
    }

    /// Returns the rate of bytes, if they are limited.
    fn rate(&self) -> Option<Rate> {
        self.shared.limits(self.is_of_caller).bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry_after;

    fn limiter(change: impl FnOnce(&mut RateLimitConfig)) -> RateLimiter {
        let mut config =
            RateLimitConfig { enabled: true, requests_per_second: 2, burst_requests: 4, ..Default::default() };
        change(&mut config);
        RateLimiter::register(&config, &Registry::new()).unwrap()
    }

    fn client(address: &str) -> Client {
        Client::of(address.parse().unwrap())
    }

    #[test]
    fn client_gets_its_burst_and_then_its_rate() {
        let limiter = limiter(|_| {});
        let (one, start) = (client("192.0.2.1"), Instant::now());
        let at = |seconds: f64| limiter.take_at(one, None, start + Duration::from_secs_f64(seconds));
        let left: Vec<_> = (0..4).map(|_| at(0.0).unwrap().unwrap().remaining).collect();
        assert_eq!(left, [3, 2, 1, 0]);
        let refused = at(0.0).unwrap_err();
        assert_eq!(retry_after(&refused), Some(1));
        assert!(at(0.4).is_err());
        assert!(at(0.51).is_ok() && at(0.52).is_err());
        // Refused requests cost nothing, and tokens do not exceed the burst.
        let mut headers = HeaderMap::new();
        at(100.0).unwrap().unwrap().describe(&mut headers);
        assert_eq!(headers[RATE_LIMIT], "\"requests\";r=3;t=1");
        assert_eq!(headers[RATE_LIMIT_POLICY], "\"requests\";q=4;w=2");
        assert!((0..3).all(|_| at(100.0).is_ok()) && at(100.0).is_err());
        assert!(limiter.take_at(client("192.0.2.2"), None, start).is_ok(), "others are not limited");
    }

    #[test]
    fn tokens_that_requests_leave_are_observed() {
        let registry = Registry::new();
        let config = RateLimitConfig { enabled: true, requests_per_second: 2, burst_requests: 4, ..Default::default() };
        let limiter = RateLimiter::register(&config, &registry).unwrap();
        let (one, now) = (client("192.0.2.1"), Instant::now());
        let refused = (0..6).filter(|_| limiter.take_at(one, None, now).is_err()).count();
        assert_eq!(refused, 2);
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == "ipfrs_rate_limit_tokens_available").unwrap();
        let of_clients = family.get_metric().iter().find(|metric| metric.get_label()[0].value() == "client").unwrap();
        let tokens = of_clients.get_histogram();
        // 3, 2, 1 and 0 tokens were left, and then there was none twice.
        assert_eq!((tokens.get_sample_count(), tokens.get_sample_sum()), (6, 6.0));
        let empty = tokens.get_bucket().iter().find(|bucket| bucket.upper_bound() == 0.0).unwrap();
        assert_eq!(empty.cumulative_count(), 3);
    }

    #[test]
    fn exempt_networks_are_not_limited_and_ipv6_networks_count_as_one() {
        let limiter = limiter(|config| config.exempt = vec!["10.0.0.0/8".to_owned().try_into().unwrap()]);
        let now = Instant::now();
        assert!((0..100).all(|_| limiter.take_at(client("10.1.2.3"), None, now).unwrap().is_none()));
        let taken = |host: u64| limiter.take_at(client(&format!("2001:db8::{host:x}")), None, now).is_ok();
        assert_eq!((0..100).filter(|host| taken(*host)).count(), 4);
    }

    /// `IPFRS_ADDRESSES` sets their number.
    #[test]
    fn memory_is_bounded_under_any_number_of_addresses() {
        const MAX_CLIENTS: usize = 1_000;
        /// Maximum memory of one client, in bytes.
        const CLIENT_BYTES: usize = 200;
        let addresses: u32 = std::env::var("IPFRS_ADDRESSES").map_or(100_000, |count| count.parse().unwrap());
        let limiter = limiter(|config| config.max_clients = MAX_CLIENTS);
        let now = Instant::now();
        for address in 0..addresses {
            limiter.take_at(Client::of(std::net::Ipv4Addr::from_bits(address).into()), None, now).unwrap();
        }
        let shared = limiter.shared().unwrap();
        let clients = shared.buckets.len();
        assert!(clients <= MAX_CLIENTS, "{clients}");
        let memory = shared.buckets.memory_used().total() + clients * size_of::<Bucket>();
        assert!(memory <= MAX_CLIENTS * CLIENT_BYTES, "{memory}");
    }

    #[test]
    fn extreme_limits_do_not_overflow() {
        for (per_second, bytes, factor) in [(1, 1, 10_000), (1_000_000, 1 << 40, 10_000), (1, 1, 1)] {
            let limiter = limiter(|config| {
                (config.requests_per_second, config.burst_requests) = (per_second, 10_000_000);
                (config.bytes_per_second, config.burst_bytes) = (bytes, 1 << 50);
                config.caller_factor = factor;
            });
            let ticket = limiter.take(client("192.0.2.1"), None).unwrap().unwrap();
            let caller = Ticket { is_of_caller: true, ..ticket.clone() };
            (0..100).for_each(|_| assert!(ticket.pay(u64::MAX >> 20).0 + caller.pay(1 << 20).0 < Duration::MAX));
            caller.describe(&mut HeaderMap::new());
        }
    }

    #[test]
    fn bytes_are_owed_at_their_rate() {
        let rate = Rate::new(1_000, 500);
        let full = AtomicU64::new(0);
        assert_eq!(rate.owe(&full, 500, 0).0, Duration::ZERO);
        assert_eq!(rate.owe(&full, 1_000, 0), (Duration::from_secs(1), NANOSECONDS));
        assert_eq!(rate.owe(&full, 0, NANOSECONDS), (Duration::ZERO, 0));
    }
}

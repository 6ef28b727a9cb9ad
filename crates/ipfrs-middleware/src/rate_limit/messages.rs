//! Messages of open connections, which wait instead of being refused.

use std::time::Duration;

use tokio::time::Instant;

use super::RateLimiter;
use crate::auth::Caller;
use crate::client::Client;

impl RateLimiter {
    /// Pays for a message of `client` that has arrived over an open connection: as for a request, and for its bytes.
    /// Returns how long the connection must not be read. `caller` is as for [`take`](Self::take).
    #[must_use]
    pub fn pay_arrived(&self, client: Client, caller: Option<&Caller>, bytes: usize) -> Duration {
        self.pay(client, caller, 1, bytes)
    }

    /// Pays for bytes that an open connection sends to `client`. Returns how long it must not send more.
    #[must_use]
    pub fn pay_sent(&self, client: Client, caller: Option<&Caller>, bytes: usize) -> Duration {
        self.pay(client, caller, 0, bytes)
    }

    fn pay(&self, client: Client, caller: Option<&Caller>, requests: u64, bytes: usize) -> Duration {
        if !self.is_enabled() {
            return Duration::ZERO;
        }
        let Some(shared) = self.shared() else { return Duration::ZERO };
        let Some((bucket, is_of_caller)) = shared.bucket(client, caller) else { return Duration::ZERO };
        let (limits, now) = (shared.limits(is_of_caller), shared.nanoseconds(Instant::now()));
        let of_bytes = limits.bytes.map_or(Duration::ZERO, |rate| rate.owe(&bucket.bytes, bytes as u64, now).0);
        let of_requests = match requests {
            0 => Duration::ZERO,
            _ => limits.requests.owe(&bucket.requests, requests, now).0,
        };
        of_requests.max(of_bytes)
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;
    use crate::rate_limit::RateLimitConfig;

    fn limiter(change: impl FnOnce(&mut RateLimitConfig)) -> RateLimiter {
        let mut config =
            RateLimitConfig { enabled: true, requests_per_second: 2, burst_requests: 4, ..Default::default() };
        change(&mut config);
        RateLimiter::register(&config, &Registry::new()).unwrap()
    }

    fn client() -> Client {
        Client::of("192.0.2.1".parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn messages_beyond_the_burst_wait_in_turn() {
        let limiter = limiter(|_| {});
        let waits: Vec<_> = (0..7).map(|_| limiter.pay_arrived(client(), None, 1_000).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 500, 1_000, 1_500]);
        assert!(limiter.take(client(), None).is_err(), "requests take tokens of the same bucket");
        assert_eq!(limiter.pay_sent(client(), None, 1_000), Duration::ZERO, "results are not requests");
        // A connection is read again after a minute at most.
        let waits = (0..100_000).map(|_| limiter.pay_arrived(client(), None, 1));
        assert_eq!(waits.max().unwrap(), Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_of_messages_wait_in_both_directions() {
        let limiter = limiter(|config| (config.bytes_per_second, config.burst_bytes) = (1_000, 2_000));
        assert_eq!(limiter.pay_arrived(client(), None, 1_500), Duration::ZERO);
        assert_eq!(limiter.pay_sent(client(), None, 1_500), Duration::from_secs(1));
        assert_eq!(limiter.pay_arrived(client(), None, 1_000), Duration::from_secs(2));
    }

    #[test]
    fn clients_without_limits_never_wait() {
        let exempt = limiter(|config| config.exempt = vec!["192.0.2.0/24".to_owned().try_into().unwrap()]);
        for limiter in [exempt, RateLimiter::off(), limiter(|config| config.enabled = false)] {
            assert!((0..100).all(|_| limiter.pay_arrived(client(), None, 1 << 20).is_zero()));
        }
    }
}

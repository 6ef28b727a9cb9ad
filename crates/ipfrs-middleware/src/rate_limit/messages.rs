//! Messages of open connections, which wait instead of being refused.

use std::time::Duration;

use tokio::time::Instant;

use super::{Rate, RateLimiter};
use crate::auth::Caller;
use crate::client::Client;

/// Number of control messages that count as a request: they need little work.
const CONTROL_MESSAGES_PER_REQUEST: u64 = 16;

/// Maximum length of a control message whose bytes do not count, in bytes: that of a WebSocket control frame.
const FREE_CONTROL_BYTES: usize = 125;

impl RateLimiter {
    /// Pays for a message of `client` that has arrived over an open connection: as for a request, and for its bytes.
    /// Returns how long the connection must not be read. `caller` is as for [`take`](Self::take).
    #[must_use]
    pub fn pay_arrived(&self, client: Client, caller: Option<&Caller>, bytes: usize) -> Duration {
        self.pay(client, caller, |rate| rate.price(1), Some(bytes))
    }

    /// Pays for a message that has arrived over an open connection and only concerns the connection, such as a ping in
    /// JSON. Sixteen of them cost as much as a request, and their bytes count if they are long. Returns how long the
    /// connection must not be read. `caller` is as for [`take`](Self::take).
    #[must_use]
    pub fn pay_control(&self, client: Client, caller: Option<&Caller>, bytes: usize) -> Duration {
        let paid = Some(bytes).filter(|bytes| *bytes > FREE_CONTROL_BYTES);
        self.pay(client, caller, |rate| rate.price(1) / CONTROL_MESSAGES_PER_REQUEST, paid)
    }

    /// Pays for bytes that an open connection sends to `client`. Returns how long it must not send more.
    #[must_use]
    pub fn pay_sent(&self, client: Client, caller: Option<&Caller>, bytes: usize) -> Duration {
        self.pay(client, caller, |_| 0, Some(bytes))
    }

    /// Pays the `price` by the rate of requests, in nanoseconds, and for bytes if they count.
    fn pay(
        &self,
        client: Client,
        caller: Option<&Caller>,
        price: impl FnOnce(Rate) -> u64,
        bytes: Option<usize>,
    ) -> Duration {
        if !self.is_enabled() {
            return Duration::ZERO;
        }
        let Some(shared) = self.shared() else { return Duration::ZERO };
        let Some((bucket, is_of_caller)) = shared.bucket(client, caller) else { return Duration::ZERO };
        let (limits, now) = (shared.limits(is_of_caller), shared.nanoseconds(Instant::now()));
        let of_bytes = limits
            .bytes
            .zip(bytes)
            .map_or(Duration::ZERO, |(rate, bytes)| rate.owe(&bucket.bytes, bytes as u64, now).0);
        let of_requests = match price(limits.requests) {
            0 => Duration::ZERO,
            price => limits.requests.owe_price(&bucket.requests, price, now).0,
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

    #[tokio::test(start_paused = true)]
    async fn sixteen_control_messages_cost_as_much_as_a_request() {
        let limiter = limiter(|_| {});
        assert!((0..4 * 16).all(|_| limiter.pay_control(client(), None, 100_000).is_zero()));
        assert!(limiter.take(client(), None).is_err(), "requests take tokens of the same bucket");
        let waits: Vec<_> = (0..3).map(|_| limiter.pay_control(client(), None, 1).as_micros()).collect();
        assert_eq!(waits, [31_250, 62_500, 93_750]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_bytes_of_long_control_messages_wait() {
        let limiter = limiter(|config| (config.bytes_per_second, config.burst_bytes) = (1_000, 2_000));
        assert_eq!(limiter.pay_control(client(), None, 2_500), Duration::from_millis(500));
        assert_eq!(limiter.pay_control(client(), None, 125), Duration::ZERO);
        assert_eq!(limiter.pay_control(client(), None, 500), Duration::from_secs(1));
    }

    #[test]
    fn clients_without_limits_never_wait() {
        let exempt = limiter(|config| config.exempt = vec!["192.0.2.0/24".to_owned().try_into().unwrap()]);
        for limiter in [exempt, RateLimiter::off(), limiter(|config| config.enabled = false)] {
            assert!((0..100).all(|_| limiter.pay_arrived(client(), None, 1 << 20).is_zero()));
            assert!((0..1_000).all(|_| limiter.pay_control(client(), None, 1 << 20).is_zero()));
        }
    }
}

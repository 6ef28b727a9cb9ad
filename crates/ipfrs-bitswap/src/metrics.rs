//! Metrics, all with the prefix `ipfrs_bitswap_`.

use ipfrs_core::{Error, Result};
use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::outcome::Outcome;
use crate::wire::Malformed;

/// Buckets of the time until a block arrives, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0];

/// Handles of the metrics.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub peers: IntGauge,
    pub dials: Dials,
    pub refused_connections: IntCounter,
    pub delayed_streams: IntCounter,
    pub messages: Directions,
    pub blocks: Directions,
    pub block_bytes: Directions,
    pub unneeded_blocks: IntCounter,
    pub unneeded_bytes: IntCounter,
    pub unrequested_blocks: IntCounter,
    pub malformed: IntCounterVec,
    pub presences: IntCounterVec,
    pub client_wants: IntGauge,
    pub server_wants: IntGauge,
    pub ignored_wants: IntCounter,
    pub attempts: IntCounterVec,
    pub block_seconds: Histogram,
    pub sessions: IntGauge,
}

/// Counters by direction.
#[derive(Debug, Clone)]
pub(crate) struct Directions {
    pub received: IntCounter,
    pub sent: IntCounter,
}

/// Counters of dials by outcome.
#[derive(Debug, Clone)]
pub(crate) struct Dials {
    pub connected: IntCounter,
    pub failed: IntCounter,
    pub no_address: IntCounter,
}

impl Metrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If one of the names is already in use in `registry`.
    pub(crate) fn register(registry: &Registry) -> Result<Self> {
        let r = Registrar(registry);
        let dials = r.vec("dials_total", "Attempts to connect to a peer, by outcome", "outcome")?;
        let wants = r.gauges("wants", "Wanted blocks: of this node (client) and of its peers (server)", "side")?;
        let malformed = r.vec("malformed_messages_total", "Messages that could not be decoded, by fault", "fault")?;
        let presences = r.vec("presences_total", "HAVE and DONT_HAVE, received and sent", "kind")?;
        let attempts = r.vec("attempts_total", "Requests of sessions to peers, by outcome", "outcome")?;
        Malformed::ALL.iter().for_each(|fault| drop(malformed.with_label_values(&[fault.label()])));
        Outcome::ALL.iter().for_each(|outcome| drop(attempts.with_label_values(&[outcome.as_str()])));
        for kind in ["have_received", "dont_have_received", "have_sent", "dont_have_sent"] {
            presences.with_label_values(&[kind]);
        }
        Ok(Self {
            peers: r.gauge("peers", "Connected peers")?,
            dials: Dials {
                connected: dials.with_label_values(&["connected"]),
                failed: dials.with_label_values(&["failed"]),
                no_address: dials.with_label_values(&["no_address"]),
            },
            refused_connections: r.counter("refused_connections_total", "Connections refused because of max_peers")?,
            delayed_streams: r
                .counter("delayed_streams_total", "Streams that waited because of the limit of one peer")?,
            messages: r.directions("messages_total", "Messages, by direction")?,
            blocks: r.directions("blocks_total", "Blocks, by direction")?,
            block_bytes: r.directions("block_bytes_total", "Bytes of blocks, by direction")?,
            unneeded_blocks: r.counter("unneeded_blocks_total", "Received blocks that were no longer needed")?,
            unneeded_bytes: r.counter("unneeded_bytes_total", "Bytes of received blocks that were no longer needed")?,
            unrequested_blocks: r.counter(
                "unrequested_blocks_total",
                "Received blocks that were never requested from the peer: other bytes than the requested ones",
            )?,
            malformed,
            presences,
            client_wants: wants.with_label_values(&["client"]),
            server_wants: wants.with_label_values(&["server"]),
            ignored_wants: r.counter("ignored_wants_total", "Wants of peers beyond their limit")?,
            attempts,
            block_seconds: r.register(Histogram::with_opts(
                HistogramOpts::new(
                    "ipfrs_bitswap_block_duration_seconds",
                    "Time from the request for a block to its verification",
                )
                .buckets(SECONDS.to_vec()),
            ))?,
            sessions: r.gauge("sessions", "Sessions that fetch blocks")?,
        })
    }
}

struct Registrar<'a>(&'a Registry);

impl Registrar<'_> {
    fn register<C: Collector + Clone + 'static>(&self, metric: prometheus::Result<C>) -> Result<C> {
        let failed = |e| Error::internal("a metric could not be registered").with_source(e);
        let metric = metric.map_err(failed)?;
        self.0.register(Box::new(metric.clone())).map_err(failed)?;
        Ok(metric)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge> {
        self.register(IntGauge::new(format!("ipfrs_bitswap_{name}"), help))
    }

    fn gauges(&self, name: &str, help: &str, label: &str) -> Result<IntGaugeVec> {
        self.register(IntGaugeVec::new(Opts::new(format!("ipfrs_bitswap_{name}"), help), &[label]))
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter> {
        self.register(IntCounter::new(format!("ipfrs_bitswap_{name}"), help))
    }

    fn vec(&self, name: &str, help: &str, label: &str) -> Result<IntCounterVec> {
        self.register(IntCounterVec::new(Opts::new(format!("ipfrs_bitswap_{name}"), help), &[label]))
    }

    fn directions(&self, name: &str, help: &str) -> Result<Directions> {
        let counters = self.vec(name, help, "direction")?;
        Ok(Directions {
            received: counters.with_label_values(&["received"]),
            sent: counters.with_label_values(&["sent"]),
        })
    }
}

//! Metrics of compression.

use ipfrs_core::{Error, Result};
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::Coding;

/// Counters of one coding. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    responses: IntCounter,
    input: IntCounter,
    output: IntCounter,
}

impl Meter {
    /// Creates and registers the counters of all codings, in their order.
    ///
    /// # Errors
    /// If a name is already in use in `registry`.
    pub(super) fn register(registry: &Registry) -> Result<[Self; Coding::ALL.len()]> {
        let family = |name: &str, help: &str| {
            let failed = |e| Error::internal("a metric could not be registered").with_source(e);
            let family = IntCounterVec::new(Opts::new(name, help), &["coding"]).map_err(failed)?;
            registry.register(Box::new(family.clone())).map_err(failed)?;
            Ok::<_, Error>(family)
        };
        let responses = family("ipfrs_compression_responses_total", "Compressed responses")?;
        let input = family("ipfrs_compression_input_bytes_total", "Bytes of responses before compression")?;
        let output = family("ipfrs_compression_output_bytes_total", "Bytes of responses after compression")?;
        Ok(Coding::ALL.map(|coding| Self {
            responses: responses.with_label_values(&[coding.name()]),
            input: input.with_label_values(&[coding.name()]),
            output: output.with_label_values(&[coding.name()]),
        }))
    }

    /// Counts a response that is being compressed.
    pub(super) fn began(&self) {
        self.responses.inc();
    }

    /// Counts input bytes.
    pub(super) fn took(&self, bytes: usize) {
        self.input.inc_by(bytes as u64);
    }

    /// Counts output bytes.
    pub(super) fn gave(&self, bytes: usize) {
        self.output.inc_by(bytes as u64);
    }

    /// Counts input and output bytes of a batch.
    pub(super) fn made(&self, took: usize, gave: usize) {
        self.took(took);
        self.gave(gave);
    }
}

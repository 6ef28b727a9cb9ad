//! What compression costs and gains.

use ipfrs_core::{Error, Result};
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::Coding;

/// The counters of one coding. Clones are the same counters.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    responses: IntCounter,
    input: IntCounter,
    output: IntCounter,
}

impl Meter {
    /// The counters of all codings, in their order, registered.
    ///
    /// # Errors
    /// When one of the names is taken in `registry`.
    pub(super) fn register(registry: &Registry) -> Result<[Self; Coding::ALL.len()]> {
        let family = |name: &str, help: &str| {
            let failed = |e| Error::internal("a metric could not be registered").with_source(e);
            let family = IntCounterVec::new(Opts::new(name, help), &["coding"]).map_err(failed)?;
            registry.register(Box::new(family.clone())).map_err(failed)?;
            Ok::<_, Error>(family)
        };
        let responses = family("ipfrs_compression_responses_total", "Answers that were compressed")?;
        let input = family("ipfrs_compression_input_bytes_total", "Bytes of answers before they were compressed")?;
        let output = family("ipfrs_compression_output_bytes_total", "Bytes of answers after they were compressed")?;
        Ok(Coding::ALL.map(|coding| Self {
            responses: responses.with_label_values(&[coding.name()]),
            input: input.with_label_values(&[coding.name()]),
            output: output.with_label_values(&[coding.name()]),
        }))
    }

    /// One more answer is being compressed.
    pub(super) fn began(&self) {
        self.responses.inc();
    }

    /// So many bytes went in.
    pub(super) fn took(&self, bytes: usize) {
        self.input.inc_by(bytes as u64);
    }

    /// So many bytes came out.
    pub(super) fn gave(&self, bytes: usize) {
        self.output.inc_by(bytes as u64);
    }

    /// So many bytes went in, and so many came out of them.
    pub(super) fn made(&self, took: usize, gave: usize) {
        self.took(took);
        self.gave(gave);
    }
}

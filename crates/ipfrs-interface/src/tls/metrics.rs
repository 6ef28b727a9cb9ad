//! Metrics of TLS.

use ipfrs_core::Result;
use ipfrs_middleware::registered;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::certificates::Certificates;

#[derive(Debug)]
pub(super) struct TlsMetrics {
    pub(super) handshakes: IntCounterVec,
    expires: IntGaugeVec,
    /// Whether the files of certificates could be read when they changed last.
    pub(super) is_current: IntGauge,
}

impl TlsMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self> {
        let help = "Handshakes of TLS, by result: full, resumed, failed, timeout";
        let handshakes = IntCounterVec::new(Opts::new("ipfrs_tls_handshakes_total", help), &["result"]);
        let handshakes = registered(registry, handshakes)?;
        // From 0 on, so that the first failure is an increase.
        for result in ["full", "resumed", "failed", "timeout"] {
            handshakes.with_label_values(&[result]);
        }
        let help = "Time at which a certificate expires, by its position in the configuration, in seconds since 1970";
        let expires =
            IntGaugeVec::new(Opts::new("ipfrs_tls_certificate_expires_timestamp_seconds", help), &["certificate"]);
        let help = "1 if the certificates in use are those in the files, 0 if changed files cannot be used";
        let is_current = registered(registry, IntGauge::new("ipfrs_tls_certificates_current", help))?;
        is_current.set(1);
        Ok(Self { handshakes, expires: registered(registry, expires)?, is_current })
    }

    /// Shows the certificates in use.
    pub(super) fn show(&self, certificates: &Certificates) {
        self.expires.reset();
        for (position, certificate) in certificates.iter().enumerate() {
            self.expires.with_label_values(&[position.to_string()]).set(certificate.expires);
        }
    }
}

//! The composition root: reads the [`Config`], opens the Node, mounts the front-ends, listens, logs and traces
//! requests, and drains on shutdown.
//!
//! * [`Gateway`] is the daemon.
//! * [`Embedded`] provides the same services without a listener, for host programs with an HTTP server, and for a
//!   command that runs while no daemon does.

mod access_log;
mod config;
mod conn;
mod embedded;
mod gateway;
mod inherited;
mod listen;
mod log_levels;
mod logging;
mod parts;
mod public;
mod request_log;
mod runtime;
mod server;
mod signals;
mod this_machine;
mod tls;
mod trace_export;
mod traces;
mod unix_socket;

pub use config::{AppliedBy, Config, ConfigFile, Flag, Settings, Sources};
pub use conn::connection_permits::connections_within;
pub use embedded::{Embedded, GatewayService};
pub use gateway::{Gateway, running_url};
pub use inherited::inherit_sockets;
/// Re-exported for checking command line flags.
pub use ipfrs_core::{codec, hash::HashFunction};
pub use ipfrs_grpc::GrpcConfig;
pub use ipfrs_http::ApiConfig;
pub use ipfrs_middleware::auth::{AuthConfig, Scope, read_local_token};
/// Beginning of a pack, for a restored repo.
pub use ipfrs_node::PACK_HEADER;
/// For backups.
pub use ipfrs_node::sync_directory;
pub use ipfrs_node::{Chunker, ImportConfig, KeyFormat, KeyType, Profile, Slice, TensorFormat};
/// Inspection of a denylist without a gateway.
pub use ipfrs_node::{DenylistReport, check_denylists, inspect_denylist};
/// Keys in files: private keys are not available over HTTP.
pub use ipfrs_node::{export_key, key_id};
/// For a panic hook, and the process that has a store open, which may be about to start or to end.
pub use ipfrs_node::{is_panic_an_error, lock_holder};
pub use logging::{LogConfig, LogFormat, Logging};
pub use public::PublicConfig;
pub use runtime::runtime_builder;
pub use server::ServerConfig;
pub use signals::{Signals, run_until_signalled, survive_file_length_limit};
pub use tls::{AcmeConfig, CertificateFiles, TlsConfig, certificate_expiries};

/// Parsers of HTTP/1.1 and certificates, for the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Compares what is read of a head; see `fuzz/fuzz_targets/http_head.rs`.
    pub async fn http_head(bytes: &[u8]) {
        crate::conn::fuzzing::head(bytes).await;
    }

    /// Compares where a chunked body ends; see `fuzz/fuzz_targets/http_chunks.rs`.
    pub async fn http_chunks(body: &[u8]) {
        crate::conn::fuzzing::chunks(body).await;
    }

    /// Reads certificates and keys; see `fuzz/fuzz_targets/tls_certificate.rs`.
    pub fn tls_certificate(of_certificate: &[(u16, u8)], of_key: &[(u16, u8)], pem: &[u8], der: &[u8]) {
        crate::tls::fuzzing::certificate(of_certificate, of_key, pem, der);
    }
}

//! HTTPS: TLS 1.2 and 1.3 on all listeners (`[tls]`).
//!
//! A listener tells the two kinds of connections apart by their first byte, so one port serves both: TLS to everybody,
//! and plain HTTP to programs on this machine and to trusted proxies.

mod certificates;
mod clients;
mod config;
mod metrics;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::HeaderValue;
use ipfrs_core::{Error, Result};
use ipfrs_middleware::{OverTls, Protection};
use parking_lot::RwLock;
use prometheus::Registry;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{HandshakeKind, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use self::certificates::Certificates;
pub use self::config::{CertificateFiles, TlsConfig};
use self::metrics::TlsMetrics;

/// First byte of a TLS connection: a record with a handshake message (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// Time between two looks at the files.
const LOOK: Duration = Duration::from_secs(5);

/// Time before its end at which an expiring certificate is logged.
const EXPIRES_SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// Protocols of a listener, for ALPN (RFC 7301).
pub(crate) type Alpn = &'static [&'static [u8]];

/// A new connection.
#[derive(Debug)]
pub(crate) enum Accepted {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>, OverTls),
}

/// TLS of a daemon. Clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    provider: Arc<CryptoProvider>,
    state: RwLock<Arc<State>>,
    metrics: TlsMetrics,
    hsts: Option<HeaderValue>,
    /// Port that redirects name; `None` for that of the listener.
    https_port: Option<u16>,
}

/// What a reload replaces.
#[derive(Debug)]
struct State {
    config: TlsConfig,
    /// Files as they were when they were read.
    seen: Vec<Seen>,
    certificates: Arc<Certificates>,
    ticketer: Arc<dyn ProducesTickets>,
    /// For each list of protocols.
    servers: Vec<(Alpn, Arc<ServerConfig>)>,
}

/// A file as it was.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    path: PathBuf,
    /// Inode, size and time of the last change; `None` if it does not exist.
    version: Option<(u64, u64, i64, i64)>,
}

impl Seen {
    fn all(config: &TlsConfig) -> Vec<Self> {
        let files = config.certificates.iter().flat_map(|files| [&files.certificate, &files.key]);
        let ca = Some(&config.client_ca).filter(|path| !path.as_os_str().is_empty());
        files.chain(ca).map(|path| Self { path: path.clone(), version: version(path) }).collect()
    }
}

fn version(path: &PathBuf) -> Option<(u64, u64, i64, i64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

/// Chooses among the certificates.
#[derive(Debug)]
struct Resolver(Arc<Certificates>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.choose(&hello)
    }
}

impl Tls {
    /// Reads the certificates; `None` if `[tls]` is off. `protocols` are those of the listeners.
    ///
    /// # Errors
    /// A file cannot be used, or the metrics are already registered.
    pub(crate) async fn open(config: &TlsConfig, protocols: &[Alpn], registry: &Registry) -> Result<Option<Self>> {
        config.validate()?;
        if !config.enabled {
            return Ok(None);
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let metrics = TlsMetrics::register(registry)?;
        let read = {
            let (config, provider, protocols) = (config.clone(), Arc::clone(&provider), protocols.to_vec());
            move || State::read(config, &provider, &protocols, None)
        };
        let state = blocking(read).await?;
        metrics.show(&state.certificates);
        let max_age = config.hsts_seconds;
        let hsts = (max_age > 0).then(|| HeaderValue::try_from(format!("max-age={max_age}"))).transpose();
        let hsts = hsts.map_err(|e| Error::internal("cannot write Strict-Transport-Security").with_source(e))?;
        let state = RwLock::new(Arc::new(state));
        Ok(Some(Self(Arc::new(Shared { provider, state, metrics, hsts, https_port: config.https_port }))))
    }

    /// Finds out whether a new connection begins with TLS, and completes its handshake. Returns `None` if it ends
    /// before, or is not complete by `end`.
    pub(crate) async fn accept(&self, stream: TcpStream, alpn: Alpn, end: Instant) -> Option<Accepted> {
        let count = |result: &str| self.0.metrics.handshakes.with_label_values(&[result]).inc();
        let mut first = [0; 1];
        let seen = timeout_at(end, stream.peek(&mut first)).await.ok()?.ok()?;
        if seen == 0 || first[0] != HANDSHAKE {
            return Some(Accepted::Plain(stream));
        }
        let state = Arc::clone(&self.0.state.read());
        let server = Arc::clone(&state.servers.iter().find(|(protocols, _)| *protocols == alpn)?.1);
        match timeout_at(end, TlsAcceptor::from(server).accept(stream)).await {
            Ok(Ok(stream)) => {
                let connection = stream.get_ref().1;
                let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
                count(if is_resumed { "resumed" } else { "full" });
                let certificate = connection.peer_certificates().and_then(<[_]>::first);
                let principal = certificate.and_then(|it| clients::principal(it, &state.config)).map(Arc::new);
                let over_tls = OverTls { hsts: self.0.hsts.clone(), principal };
                Some(Accepted::Tls(Box::new(stream), over_tls))
            }
            Ok(Err(error)) => {
                count("failed");
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
            Err(_) => {
                count("timeout");
                None
            }
        }
    }

    /// Returns how a plain connection from `peer` to the address `own` of this daemon is treated. Programs on this
    /// machine and trusted proxies need no TLS.
    pub(crate) fn without(&self, peer: IpAddr, own: SocketAddr, is_trusted: bool) -> Protection {
        let peer = peer.to_canonical();
        match peer.is_loopback() || peer == own.ip().to_canonical() || is_trusted {
            true => Protection::Plain,
            false => Protection::Missing { https_port: self.0.https_port.unwrap_or(own.port()) },
        }
    }

    /// Reads the files when they change, for as long as this future is polled.
    pub(crate) async fn watch(self) {
        let mut refused: Option<Vec<Seen>> = None;
        loop {
            sleep(LOOK).await;
            let state = Arc::clone(&self.0.state.read());
            let config = state.config.clone();
            let Ok(seen) = blocking(move || Ok(Seen::all(&config))).await else { continue };
            // Files that could not be used are read again once they change.
            if seen == state.seen || refused.as_ref() == Some(&seen) {
                continue;
            }
            match self.reload(&state.config).await {
                Ok(()) => refused = None,
                Err(error) => {
                    tracing::error!(%error, "changed certificates cannot be used: the old ones stay in use");
                    refused = Some(seen);
                }
            }
        }
    }

    /// Reads the files again, by a configuration whose other keys are the same.
    ///
    /// # Errors
    /// A file cannot be used; the old certificates stay in use.
    pub(crate) async fn reload(&self, config: &TlsConfig) -> Result<()> {
        let old = Arc::clone(&self.0.state.read());
        let protocols: Vec<_> = old.servers.iter().map(|(protocols, _)| *protocols).collect();
        let (config, provider) = (config.clone(), Arc::clone(&self.0.provider));
        let read = blocking(move || State::read(config, &provider, &protocols, Some(&old))).await;
        self.0.metrics.is_current.set(i64::from(read.is_ok()));
        let state = read?;
        self.0.metrics.show(&state.certificates);
        tracing::info!(certificates = state.config.certificates.len(), "read the certificates of [tls]");
        *self.0.state.write() = Arc::new(state);
        Ok(())
    }
}

impl State {
    /// Reads all files. Blocks. Sessions of `old` can be resumed, unless the issuers of client certificates differ: a
    /// session keeps the certificate of its client.
    fn read(config: TlsConfig, provider: &Arc<CryptoProvider>, protocols: &[Alpn], old: Option<&Self>) -> Result<Self> {
        // Before the files are read: a change in between is then seen later.
        let seen = Seen::all(&config);
        let certificates = Arc::new(Certificates::read(&config.certificates, provider)?);
        warn_of_expiry(&certificates);
        let verifier = clients::verifier(&config, provider)?;
        let is_same_ca = |old: &&Self| {
            let ca = |seen: &[Seen]| seen.iter().find(|seen| seen.path == config.client_ca).map(|seen| seen.version);
            old.config.client_ca == config.client_ca && ca(&old.seen) == ca(&seen)
        };
        let ticketer = match old.filter(is_same_ca) {
            Some(old) => Arc::clone(&old.ticketer),
            None => aws_lc_rs::Ticketer::new()
                .map_err(|e| Error::internal("cannot create session tickets").with_source(e))?,
        };
        let versions: &[_] = match config.min_version.as_str() {
            "1.3" => &[&rustls::version::TLS13],
            _ => &[&rustls::version::TLS13, &rustls::version::TLS12],
        };
        let mut servers = Vec::new();
        for protocols in protocols {
            let builder = ServerConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(versions);
            let builder = builder.map_err(|e| Error::internal("TLS cannot be set up").with_source(e))?;
            let mut server = builder
                .with_client_cert_verifier(Arc::clone(&verifier))
                .with_cert_resolver(Arc::new(Resolver(Arc::clone(&certificates))));
            server.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            server.ticketer = Arc::clone(&ticketer);
            servers.push((*protocols, Arc::new(server)));
        }
        Ok(Self { config, seen, certificates, ticketer, servers })
    }
}

fn warn_of_expiry(certificates: &Certificates) {
    let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + EXPIRES_SOON;
    for certificate in certificates.iter().filter(|it| it.expires < i64::try_from(soon.as_secs()).unwrap_or(i64::MAX)) {
        let names = certificate.names.join(", ");
        tracing::warn!(names, expires = certificate.expires, "a certificate has expired or will within a week");
    }
}

async fn blocking<T: Send + 'static>(task: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(task)
        .await
        .map_err(|e| Error::internal("reading certificates stopped").with_source(e))?
}

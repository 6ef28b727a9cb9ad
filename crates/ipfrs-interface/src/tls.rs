//! HTTPS: TLS 1.2 and 1.3 on all listeners (`[tls]`).
//!
//! A listener tells the two kinds of connections apart by their first byte, so one port serves both: TLS to all
//! clients, and plain HTTP to programs on this machine and to trusted proxies.

mod acme;
mod certificates;
mod clients;
mod config;
mod connection;
mod metrics;

use std::collections::BTreeMap;
use std::fs;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::http::HeaderValue;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::{Client, OverTls, Protection};
use ipfrs_node::off_workers;
use ipfrs_stream::Encrypted;
use parking_lot::RwLock;
use prometheus::Registry;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{HandshakeKind, ServerConfig};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use self::acme::AcmeConfig;
use self::acme::{Acme, Challenges};
pub use self::certificates::CertificateFiles;
#[cfg(fuzzing)]
pub(crate) use self::certificates::fuzzing;
use self::certificates::{Certificate, Certificates};
pub use self::config::TlsConfig;
use self::connection::TlsConnection;
use self::metrics::TlsMetrics;
use crate::this_machine::is_this_machine;

/// First byte of a TLS connection: a record with a handshake message (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// Time between two looks at the files.
const LOOK: Duration = Duration::from_secs(5);

/// Time between two lines about certificates that expire, while no file changes.
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Protocols of a listener, for ALPN (RFC 7301).
pub(crate) type Alpn = &'static [&'static [u8]];

/// Name of HTTP/2 in ALPN.
pub(crate) const HTTP2: &[u8] = b"h2";

/// A new connection.
#[derive(Debug)]
pub(crate) enum Accepted {
    Plain(TcpStream),
    Tls {
        stream: Box<dyn Encrypted>,
        over_tls: OverTls,
        /// Whether ALPN chose HTTP/2, which the client must then use.
        is_http2: bool,
    },
}

/// TLS of a daemon. Clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    files: Files,
    state: RwLock<Arc<State>>,
    metrics: TlsMetrics,
    /// One reload at a time, so that none restores what another has replaced.
    reloading: Arc<Mutex<()>>,
    hsts: Option<HeaderValue>,
    /// Port that redirects name; `None` for that of the listener.
    https_port: Option<u16>,
}

/// Inputs for reading the files, besides the configuration.
#[derive(Debug, Clone)]
struct Files {
    provider: Arc<CryptoProvider>,
    repo: PathBuf,
    challenges: Challenges,
}

/// State that a reload replaces.
#[derive(Debug)]
struct State {
    config: TlsConfig,
    /// Files as they were when they were read.
    seen: Vec<Seen>,
    certificates: Arc<Certificates>,
    ticketer: Arc<dyn ProducesTickets>,
    /// Issuers of client certificates, as in their file.
    client_ca: Vec<u8>,
    /// For each name of a client, what is cancelled when other rules hold for it: open connections lose their rights.
    clients: BTreeMap<String, CancellationToken>,
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

/// Returns the files of all certificates: those of the configuration, then the one from the authority.
fn all_files(config: &TlsConfig, repo: &Path) -> Vec<CertificateFiles> {
    let of_authority = Some(acme::files(repo)).filter(|files| config.acme.is_enabled() && files.certificate.exists());
    config.certificates.iter().cloned().chain(of_authority).collect()
}

impl Seen {
    fn all(config: &TlsConfig, repo: &Path) -> Vec<Self> {
        let files = all_files(config, repo);
        let files = files.iter().flat_map(|files| [&files.certificate, &files.key]);
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
struct Resolver {
    certificates: Arc<Certificates>,
    challenges: Challenges,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match self.challenges.choose(&hello) {
            Some(answer) => answer,
            None => self.certificates.choose(&hello),
        }
    }
}

/// Checks the certificates and keys that the configuration names. Blocks on the disk.
///
/// # Errors
/// A file cannot be used.
pub(crate) fn check_files(config: &TlsConfig) -> Result<()> {
    if !config.enabled {
        return Ok(());
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    Certificates::read(&config.certificates, &provider)?;
    config.acme.check_files()?;
    clients::verifier(config, &clients::issuers(config)?, &provider).map(drop)
}

/// Reads each certificate of a configuration, and that of the authority if the repo has it, as a daemon does. Returns
/// the time at which it expires, in seconds since 1970. Blocks on the disk.
#[must_use]
pub fn certificate_expiries(config: &TlsConfig, repo: &Path) -> Vec<(CertificateFiles, Result<i64>)> {
    let provider = aws_lc_rs::default_provider();
    let read = |files: CertificateFiles| {
        let expires = Certificate::read(&files, &provider).map(|certificate| certificate.expires);
        (files, expires)
    };
    all_files(config, repo).into_iter().map(read).collect()
}

impl Tls {
    /// Reads the certificates; `None` if `[tls]` is off. `protocols` are those of the listeners.
    ///
    /// # Errors
    /// A file cannot be used, or the metrics are already registered.
    pub(crate) async fn open(
        config: &TlsConfig,
        protocols: &[Alpn],
        repo: &Path,
        registry: &Registry,
    ) -> Result<Option<Self>> {
        config.validate()?;
        if !config.enabled {
            return Ok(None);
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let metrics = TlsMetrics::register(registry)?;
        let files = Files { provider, repo: repo.to_owned(), challenges: Challenges::default() };
        let (reader, read, protocols) = (files.clone(), config.clone(), protocols.to_vec());
        let state = off_workers(move || reader.read(read, &protocols, None)).await?;
        metrics.show(&state.certificates);
        let max_age = config.hsts_seconds;
        let hsts = (max_age > 0).then(|| HeaderValue::try_from(format!("max-age={max_age}"))).transpose();
        let hsts = hsts.map_err(|e| Error::internal("cannot write Strict-Transport-Security").with_source(e))?;
        let state = RwLock::new(Arc::new(state));
        let (reloading, https_port) = (Arc::default(), config.https_port);
        Ok(Some(Self(Arc::new(Shared { files, state, metrics, reloading, hsts, https_port }))))
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
        let peer = stream.peer_addr().map_or_else(|_| Client::default(), |peer| Client::of(peer.ip()));
        let state = Arc::clone(&self.0.state.read());
        let server = Arc::clone(&state.servers.iter().find(|(protocols, _)| *protocols == alpn)?.1);
        match timeout_at(end, TlsAcceptor::from(server).accept(stream)).await {
            Ok(Ok(stream)) => {
                let connection = stream.get_ref().1;
                let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
                count(if is_resumed { "resumed" } else { "full" });
                let certificate = connection.peer_certificates().and_then(<[_]>::first);
                let principal = certificate.and_then(|it| clients::principal(it, &state.config, &state.clients));
                let hsts = self.0.hsts.clone();
                let over_tls = OverTls { hsts, principal: principal.map(Arc::new), peer };
                let is_http2 = connection.alpn_protocol() == Some(HTTP2);
                Some(Accepted::Tls { stream: Box::new(TlsConnection::new(stream)), over_tls, is_http2 })
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
        match is_this_machine(peer, own.ip()) || is_trusted {
            true => Protection::Plain,
            false => Protection::Missing { https_port: self.0.https_port.unwrap_or(own.port()) },
        }
    }

    /// Reads the files when they change, for as long as this future is polled.
    pub(crate) async fn watch(self) {
        let mut refused: Option<Vec<Seen>> = None;
        let mut warned = Instant::now();
        loop {
            sleep(LOOK).await;
            let state = Arc::clone(&self.0.state.read());
            if warned.elapsed() >= WARN_EVERY {
                warned = Instant::now();
                state.certificates.warn_of_expiry();
            }
            let (config, repo) = (state.config.clone(), self.0.files.repo.clone());
            let Ok(seen) = off_workers(move || Ok(Seen::all(&config, &repo))).await else { continue };
            if seen == state.seen {
                // Files that could not be used may have been replaced by those in use.
                refused = None;
                self.0.metrics.is_current.set(1);
                continue;
            }
            // Files that could not be used are read again once they change.
            if refused.as_ref() == Some(&seen) {
                continue;
            }
            match self.reload(None).await {
                Ok(apply) => {
                    apply();
                    refused = None;
                }
                Err(error) => {
                    tracing::error!(%error, "changed certificates cannot be used: the old ones stay in use");
                    refused = Some(seen);
                }
            }
        }
    }

    /// Gets certificates from the authority of `[tls.acme]`, for as long as this future is polled.
    pub(crate) async fn renew(self) {
        let state = Arc::clone(&self.0.state.read());
        let Files { provider, repo, challenges } = self.0.files.clone();
        let acme = Acme { config: state.config.acme.clone(), repo, challenges, provider };
        if !acme.config.is_enabled() {
            return;
        }
        let mut failures = 0;
        loop {
            let state = Arc::clone(&self.0.state.read());
            if let Some(fresh) = state.certificates.fresh_for(&acme.config.domains, SystemTime::now()) {
                sleep(fresh.min(acme::LOOK)).await;
                continue;
            }
            let outcome = match acme.attempt().await {
                Ok(()) => self.take(&acme.config.domains).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(()) => failures = 0,
                Err(error) => acme.wait(&error, &mut failures).await,
            }
        }
    }

    /// Reads a certificate that the authority has issued for `domains`.
    async fn take(&self, domains: &[String]) -> Result<()> {
        self.reload(None).await?();
        if self.0.state.read().certificates.fresh_for(domains, SystemTime::now()).is_some() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unavailable, "the authority has issued a certificate for other names or a past time"))
    }

    /// Reads the files again, by the same configuration or by one whose other keys are the same. They are used once the
    /// returned function is called.
    ///
    /// # Errors
    /// A file cannot be used; the old certificates stay in use.
    pub(crate) async fn reload(&self, config: Option<&TlsConfig>) -> Result<impl FnOnce() + use<>> {
        let reloading = Arc::clone(&self.0.reloading).lock_owned().await;
        let old = Arc::clone(&self.0.state.read());
        let protocols: Vec<_> = old.servers.iter().map(|(protocols, _)| *protocols).collect();
        let (config, files) = (config.unwrap_or(&old.config).clone(), self.0.files.clone());
        let read = off_workers(move || files.read(config, &protocols, Some(&old))).await;
        let this = Arc::clone(&self.0);
        let state = read.inspect_err(|_| this.metrics.is_current.set(0))?;
        Ok(move || {
            this.metrics.is_current.set(1);
            this.metrics.show(&state.certificates);
            tracing::info!(certificates = state.certificates.iter().count(), "read the certificates of [tls]");
            let state = Arc::new(state);
            let old = mem::replace(&mut *this.state.write(), Arc::clone(&state));
            old.clients.iter().filter(|(name, token)| state.clients.get(*name) != Some(token)).for_each(
                |(_, token)| {
                    token.cancel();
                },
            );
            drop(reloading);
        })
    }
}

impl Files {
    /// Reads all files. Blocks. Sessions of `old` can be resumed, unless the issuers of client certificates differ: a
    /// session keeps the certificate of its client. Clients of `old` keep their rights, unless issuers or their scopes
    /// differ.
    fn read(&self, config: TlsConfig, protocols: &[Alpn], old: Option<&State>) -> Result<State> {
        let provider = &self.provider;
        // Before the files are read: a change in between is then seen later.
        let seen = Seen::all(&config, &self.repo);
        let certificates = Arc::new(Certificates::read(&all_files(&config, &self.repo), provider)?);
        certificates.warn_of_expiry();
        let client_ca = clients::issuers(&config)?;
        let verifier = clients::verifier(&config, &client_ca, provider)?;
        let old = old.filter(|old| old.client_ca == client_ca);
        let ticketer = match old {
            Some(old) => Arc::clone(&old.ticketer),
            None => aws_lc_rs::Ticketer::new()
                .map_err(|e| Error::internal("cannot create session tickets").with_source(e))?,
        };
        let kept = |name: &str| {
            let old = old.filter(|old| old.config.client_scopes.get(name) == config.client_scopes.get(name));
            old.and_then(|old| old.clients.get(name).cloned())
        };
        let names = config.client_scopes.keys();
        let clients = names.map(|name| (name.clone(), kept(name).unwrap_or_default())).collect();
        let versions: &[_] = match config.min_version.as_str() {
            "1.3" => &[&rustls::version::TLS13],
            _ => &[&rustls::version::TLS13, &rustls::version::TLS12],
        };
        let mut servers = Vec::new();
        for protocols in protocols {
            let builder = ServerConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(versions);
            let builder = builder.map_err(|e| Error::internal("TLS cannot be set up").with_source(e))?;
            let mut server =
                builder.with_client_cert_verifier(Arc::clone(&verifier)).with_cert_resolver(Arc::new(Resolver {
                    certificates: Arc::clone(&certificates),
                    challenges: self.challenges.clone(),
                }));
            server.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            if config.acme.is_enabled() {
                server.alpn_protocols.push(acme::PROTOCOL.to_vec());
            }
            server.ticketer = Arc::clone(&ticketer);
            servers.push((*protocols, Arc::new(server)));
        }
        Ok(State { config, seen, certificates, ticketer, client_ca, clients, servers })
    }
}

#[cfg(test)]
mod tests;

//! The daemon: opens the repo, binds the listeners and serves requests until it is stopped.

mod reload;

use std::fs::{self, File};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_grpc::Grpc;
use ipfrs_http::{Lifecycle, RunningConfiguration, Service};
use ipfrs_middleware::auth::Auth;
use ipfrs_middleware::{Protection, Rules};
use ipfrs_node::{BlockStore, Node};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::conn::Connections;
use crate::listen::{Endpoint, listen, listen_for_api, listen_for_grpc, listen_for_public, listen_for_redirects};
use crate::parts::Parts;
use crate::tls::Tls;
use crate::unix_socket::UnixSocket;
use crate::{Config, ServerConfig, inherited};

/// File in the repo that holds the address of the running daemon, as a multiaddr.
const API_FILE: &str = "api";

/// File in the repo that holds the URL of the running daemon's content, as in a repo of Kubo. curl and ffmpeg read it.
const GATEWAY_FILE: &str = "gateway";

/// Returns the URL of the address that the daemon on `repo` wrote there. The daemon may have ended since.
///
/// # Errors
/// The file exists but cannot be read.
pub fn running_url(repo: &Path) -> Result<Option<String>> {
    let path = repo.join(API_FILE);
    match fs::read_to_string(&path) {
        Ok(address) => Ok(Some(url_of(address.trim()))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io(format_args!("cannot read {}", path.display()), e)),
    }
}

/// Returns the URL of a multiaddr such as `/ip4/127.0.0.1/tcp/8080`. Any other text is returned as it is.
fn url_of(address: &str) -> String {
    match *address.split('/').collect::<Vec<_>>() {
        ["", "ip4", ip, "tcp", port] => format!("http://{ip}:{port}"),
        ["", "ip6", ip, "tcp", port] => format!("http://[{ip}]:{port}"),
        _ => address.to_owned(),
    }
}

/// A running gateway. Dropping it requests a shutdown; [`join`](Self::join) waits until it has stopped.
#[derive(Debug)]
pub struct Gateway {
    addresses: Vec<SocketAddr>,
    grpc_addresses: Vec<SocketAddr>,
    api_addresses: Vec<SocketAddr>,
    public_addresses: Vec<SocketAddr>,
    redirect_addresses: Vec<SocketAddr>,
    node: Node,
    /// Configuration in force.
    config: Config,
    /// The configuration that the API shows, if it was read from a file.
    shown: Option<Arc<RunningConfiguration>>,
    rules: Rules,
    tls: Option<Tls>,
    limits: reload::Limits,
    lifecycle: Lifecycle,
    running: JoinHandle<Result<()>>,
}

/// Returns the absolute path of the repo. Messages to clients omit absolute paths, but relative ones are not
/// recognized.
fn absolute(repo: &Path) -> Result<PathBuf> {
    std::path::absolute(repo).map_err(|e| Error::io(format_args!("cannot find the repo {}", repo.display()), e))
}

/// Checks the configuration of a daemon.
fn check(config: &Config) -> Result<()> {
    config.validate()?;
    // Sockets of the service manager replace configured addresses.
    if inherited::are_left() { Ok(()) } else { config.check_listeners() }
}

impl Gateway {
    /// Opens the repo, binds the addresses of `[server]` and `[grpc]`, writes its address to `<repo>/api` (unless
    /// `store.read_only`) and serves requests. Returns once the gateway is ready.
    ///
    /// # Errors
    /// The repo is locked by another process or cannot be opened, or an address cannot be bound or is not permitted
    /// ([`Config::may_listen_anywhere`]). All resources are released in that case.
    pub async fn bind(config: &Config, repo: &Path) -> Result<Self> {
        check(config)?;
        let repo = &absolute(repo)?;
        Self::start(config, repo, Parts::open(config, repo, "ipfrs gateway").await?).await
    }

    /// Same as [`bind`](Self::bind), with the given engine in place of the configuration in `[store]`: see
    /// [`NodeBuilder::engine`](ipfrs_node::NodeBuilder::engine).
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub async fn bind_over(config: &Config, repo: &Path, engine: Arc<dyn BlockStore>) -> Result<Self> {
        check(config)?;
        let repo = &absolute(repo)?;
        Self::start(config, repo, Parts::over(config, repo, engine).await?).await
    }

    async fn start(config: &Config, repo: &Path, parts: Parts) -> Result<Self> {
        for variable in config.ignored_variables() {
            tracing::warn!(variable, "the environment variable is ignored: no setting has a name like it");
        }
        let node = parts.node.clone();
        match Self::serve(config, repo, parts).await {
            Ok(gateway) => Ok(gateway),
            Err(error) => {
                if let Err(error) = node.close().await {
                    tracing::error!(%error, "the store could not be closed");
                }
                Err(error)
            }
        }
    }

    async fn serve(config: &Config, repo: &Path, parts: Parts) -> Result<Self> {
        let (listeners, addresses) = with_addresses(listen(Endpoint::of_server(config)).await?)?;
        let (grpc_listeners, grpc_addresses) = with_addresses(listen_for_grpc(config).await?)?;
        let (api_listeners, api_addresses) = with_addresses(listen_for_api(config).await?)?;
        let (public_listeners, public_addresses) = with_addresses(listen_for_public(config).await?)?;
        let (redirect_listeners, redirect_addresses) = with_addresses(listen_for_redirects(config).await?)?;
        let unix_socket = config.api.unix_socket.as_deref().map(UnixSocket::bind).transpose()?;
        let port = addresses.first().map_or(config.server.port, SocketAddr::port);
        let lifecycle = Lifecycle::new();
        let node = parts.node.clone();
        let rules = parts.rules(config).await?;
        let tls = parts.tls(config, repo).await?;
        let mut app = parts.app(config, port, &lifecycle, &rules)?;
        let mut grpc = None;
        if config.grpc.enabled {
            let services = parts.grpc(config, &lifecycle, &rules)?;
            let addresses = grpc_addresses.iter().map(SocketAddr::to_string).collect();
            app.service.mount_grpc(services.web_routes(), addresses, Grpc::is_change);
            grpc = Some((services, grpc_listeners));
        }
        let shown = app.service.running_configuration();
        let api = app.service.api_listener(port, api_addresses.iter().map(SocketAddr::to_string).collect());
        let max_request = Duration::from_secs(config.gateway.max_request_seconds);
        let public = app.service.content_only();
        let https_port = config.tls.https_port.or(public_addresses.first().map(SocketAddr::port)).unwrap_or(port);
        let redirecting = public.protected(Protection::Missing { https_port });
        let connections = Connections::new(
            &config.server,
            !api_listeners.is_empty(),
            max_request,
            node.clone(),
            app.metrics.connections_active,
        );
        let limits = reload::Limits {
            requests: app.permits,
            calls: grpc.as_ref().map(|(services, _)| services.permits()),
            websockets: app.websockets,
            connections: Arc::clone(&connections),
        };
        let address_files = match config.store.read_only {
            true => Vec::new(),
            false => AddressFile::write_all(repo, addresses.first().copied())?,
        };
        node.start_maintenance();
        lifecycle.set_ready();
        tracing::info!(?addresses, grpc = ?grpc_addresses, api = ?api_addresses, public = ?public_addresses, repo = %repo.display(), "listening");
        let ending = Ending {
            lifecycle: lifecycle.clone(),
            node: node.clone(),
            auth: rules.auth.clone(),
            address_files,
            server: config.server.clone(),
        };
        let http = [
            (app.service, listeners, tls.clone(), false),
            (api, api_listeners, tls.clone(), true),
            (public, public_listeners, tls.clone(), false),
            (redirecting, redirect_listeners, None, false),
        ];
        let mut accepting = accept(&connections, http, grpc, tls.as_ref());
        if let Some((socket, target)) = unix_socket.zip(addresses.first()) {
            accepting.spawn(socket.accept(reachable(*target), config.server.max_connections));
        }
        let running = tokio::spawn(ending.after(connections, accepting));
        Ok(Self {
            addresses,
            grpc_addresses,
            api_addresses,
            public_addresses,
            redirect_addresses,
            node,
            config: config.clone(),
            shown,
            rules,
            tls,
            limits,
            lifecycle,
            running,
        })
    }

    /// Returns the node that the gateway serves. It is closed when the gateway stops.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the bound addresses, with the actual ports.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the addresses bound for gRPC, with the actual ports; empty if gRPC is disabled.
    #[must_use]
    pub fn grpc_addresses(&self) -> &[SocketAddr] {
        &self.grpc_addresses
    }

    /// Returns the addresses of the API listener, with the actual ports; empty if it is disabled, or if its default
    /// port was in use.
    #[must_use]
    pub fn api_addresses(&self) -> &[SocketAddr] {
        &self.api_addresses
    }

    /// Returns the addresses of the listener with the read-only gateway only; empty if it is disabled.
    #[must_use]
    pub fn public_addresses(&self) -> &[SocketAddr] {
        &self.public_addresses
    }

    /// Returns the addresses of the listener that redirects to HTTPS; empty without `tls.redirect_port`.
    #[must_use]
    pub fn redirect_addresses(&self) -> &[SocketAddr] {
        &self.redirect_addresses
    }

    /// Returns one URL per bound address.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.addresses.iter().map(|address| format!("{scheme}://{address}")).collect()
    }

    /// Requests a shutdown. No further connections are accepted, and running transfers have
    /// [`ServerConfig::shutdown_grace_seconds`] to complete.
    pub fn shutdown(&self) {
        self.lifecycle.request_shutdown();
    }

    /// Waits until the gateway has stopped, after [`shutdown`](Self::shutdown) or a shutdown request of a client, and
    /// the store is closed.
    ///
    /// # Errors
    /// The store could not be flushed.
    pub async fn join(&mut self) -> Result<()> {
        match (&mut self.running).await {
            Ok(result) => result,
            Err(e) => Err(Error::internal("the gateway ended unexpectedly").with_source(e)),
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Returns the listeners and the addresses to which they are bound.
fn with_addresses(listeners: Vec<TcpListener>) -> Result<(Vec<TcpListener>, Vec<SocketAddr>)> {
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>();
    let addresses = addresses.map_err(|e| Error::io("cannot read the bound address", e))?;
    Ok((listeners, addresses))
}

/// Accepts connections from all listeners, and renews certificates, until the returned set is shut down.
fn accept(
    connections: &Arc<Connections>,
    http: [(Service, Vec<TcpListener>, Option<Tls>, bool); 4],
    grpc: Option<(Grpc, Vec<TcpListener>)>,
    tls: Option<&Tls>,
) -> JoinSet<()> {
    let mut accepting = JoinSet::new();
    for (service, listeners, tls, is_api) in http {
        for listener in listeners {
            accepting.spawn(Arc::clone(connections).accept(listener, service.clone(), tls.clone(), is_api));
        }
    }
    if let Some((services, listeners)) = grpc {
        for listener in listeners {
            accepting.spawn(Arc::clone(connections).accept(listener, services.clone(), tls.cloned(), false));
        }
    }
    if let Some(tls) = tls {
        accepting.spawn(tls.clone().watch());
        accepting.spawn(tls.clone().renew());
    }
    accepting
}

/// State for the shutdown of the gateway.
struct Ending {
    lifecycle: Lifecycle,
    node: Node,
    auth: Auth,
    /// In the order of their removal; empty for a read-only repo, and if the disk was full.
    address_files: Vec<AddressFile>,
    server: ServerConfig,
}

impl Ending {
    async fn after(self, connections: Arc<Connections>, mut accepting: JoinSet<()>) -> Result<()> {
        self.lifecycle.shutdown_requested().await;
        self.lifecycle.drain();
        let grace = self.server.shutdown_grace();
        tracing::info!(grace_seconds = grace.as_secs(), "stopping: waiting for running transfers to finish");
        // The listeners are closed before waiting, so that new clients are refused at once.
        accepting.shutdown().await;
        // A wait for content that no peer has is no running transfer.
        self.node.end_waits_for_peers();
        let left = connections.drain(grace).await;
        if left > 0 {
            tracing::warn!(connections = left, "closed connections: transfers did not end within the grace period");
        }
        // The files are removed last, because the existence of `api` means that a daemon holds the repo.
        self.auth.close();
        let closed = self.node.close().await;
        for address_file in &self.address_files {
            address_file.remove();
        }
        tracing::info!("stopped");
        closed
    }
}

/// A file in the repo with the address of the daemon, for programs on this machine.
struct AddressFile {
    path: PathBuf,
    /// Kept open, so that the inode number cannot be reused.
    file: File,
}

impl AddressFile {
    /// Writes the address of the daemon for commands (`<repo>/api`) and the URL of its content (`<repo>/gateway`), in
    /// the forms of Kubo, whose clients read them.
    fn write_all(repo: &Path, address: Option<SocketAddr>) -> Result<Vec<Self>> {
        let address = address.map(reachable);
        let url = address.map_or_else(String::new, |address| format!("http://{address}"));
        let gateway = Self::write(repo, GATEWAY_FILE, &url)?;
        let api = Self::write(repo, API_FILE, &address.map_or_else(String::new, multiaddr))
            .inspect_err(|_| gateway.iter().for_each(Self::remove))?;
        Ok([gateway, api].into_iter().flatten().collect())
    }

    /// Returns `None` if the disk is full. The daemon can still serve content, and clients can free space through the
    /// RPC.
    fn write(repo: &Path, name: &str, address: &str) -> Result<Option<Self>> {
        let path = repo.join(name);
        // The file is renamed into place, so a reader sees the whole address or none.
        let draft = repo.join(format!("{name}.new"));
        let written = File::create(&draft).and_then(|mut file| {
            file.write_all(address.as_bytes())?;
            fs::rename(&draft, &path)?;
            Ok(file)
        });
        match written {
            Ok(file) => Ok(Some(Self { path, file })),
            Err(e) => match Error::io(format_args!("cannot write {}", path.display()), e) {
                error if error.kind() == ErrorKind::NoSpace => {
                    // A partial draft is useless.
                    let _ = fs::remove_file(&draft);
                    tracing::warn!(%error, "programs find this daemon only by its URL: free space, then restart it");
                    Ok(None)
                }
                error => Err(error),
            },
        }
    }

    /// Removes the file, unless it belongs to another daemon that has opened the repo since.
    fn remove(&self) {
        let removed = self.file.metadata().and_then(|own| match fs::metadata(&self.path) {
            Ok(current) if current.ino() == own.ino() => fs::remove_file(&self.path),
            _ => Ok(()),
        });
        if let Err(error) = removed {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the file with this daemon's address");
        }
    }
}

/// Removes the addresses that a killed daemon left behind. The caller must hold the repo, so that no daemon is running.
pub(crate) fn remove_stale_url(repo: &Path) {
    let removed = [GATEWAY_FILE, API_FILE].map(|name| fs::remove_file(repo.join(name)).is_ok());
    if removed.contains(&true) {
        tracing::warn!(repo = %repo.display(), "the last gateway of this repo ended without cleaning up");
    }
}

fn multiaddr(address: SocketAddr) -> String {
    let protocol = if address.is_ipv4() { "ip4" } else { "ip6" };
    format!("/{protocol}/{}/tcp/{}", address.ip(), address.port())
}

/// Replaces an unspecified address, which clients cannot connect to, by the loopback address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
